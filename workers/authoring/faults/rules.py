"""Faults by rule: one criterion of a good completion is broken at a time."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rubricsvc.core.rubric import Binary, Criterion, Rubric
from rubricsvc.core.rubric_example import NumberRange, RubricExample
from rubricsvc.lint.duplicates import content_words
from workers.authoring.alterations.alter import alterations
from workers.authoring.faults.check_faults import violations
from workers.authoring.sentences import Span, sentence_places, without

_LEAST_SHARED = 0.3
"""Share of a criterion's words that the sentence which carries it has."""
_NEARLY = 0.75
"""A sentence carries it too if it shares this part of what the best one shares."""

_SAYS = re.compile(
    r"^(?:(?:The|This) (?:answer|response|completion|text|report|summary) )?"
    r"(?:says|states|claims|mentions|notes|explains|concludes|reports|warns|asserts) that (?P<statement>.+?)[.]?\s*$",
    re.IGNORECASE | re.DOTALL,
)
"""A criterion on a statement: its negation breaks it, and if it is a fault, stating it is the fault."""


@dataclass(frozen=True, slots=True)
class GoodExample:
    """An example that is good by one criterion: met, or for a pitfall not met."""

    example: RubricExample
    criterion: Criterion
    expected: NumberRange


@dataclass(frozen=True, slots=True)
class Fault:
    """A completion that was good by one criterion, with one fault."""

    base: GoodExample
    kind: str
    text: str


def good_examples(rubric: Rubric) -> list[GoodExample]:
    """Return what the examples say is good: a verdict above the lowest, of a pitfall below the highest."""
    return [
        GoodExample(example, rubric.by_key[key], expected)
        for example in rubric.examples or ()
        for key, expected in (example.verdicts or {}).items()
        if is_good(rubric.by_key[key], expected)
    ]


def is_good(criterion: Criterion, expected: NumberRange) -> bool:
    """Return whether a worse verdict than these is possible: a lower one, of a pitfall a higher one."""
    if criterion.weight < 0:
        return expected.max is not None and expected.max < 1.0
    return expected.min is not None and expected.min > 0.0


def faults_by_rule(rubric: Rubric, base: GoodExample) -> list[Fault]:
    """Return the completion of the base with one fault each, by all rules that apply; there may be none."""
    text, found = base.example.text, dict[str, str]()
    for kind, broken in _broken(rubric, base):
        if broken.strip() != text.strip() and broken not in found:
            found[broken] = kind
    return [Fault(base, kind, broken) for broken, kind in found.items()]


def _broken(rubric: Rubric, base: GoodExample) -> Iterator[tuple[str, str]]:
    """Yield the kind of each fault and the text with it."""
    criterion, text = base.criterion, base.example.text
    if criterion.weight < 0:
        yield from _planted(rubric, base)
    elif criterion.check is not None:
        for broken in violations(criterion.check, text):
            yield "check", broken
    elif places := carrying(base):
        yield "deleted", without(text, places)
        yield from _altered(base, places)


def carrying(base: GoodExample) -> list[Span]:
    """Return the sentences that carry the criterion's content: those of its evidence, else those with its words."""
    text, places = base.example.text, sentence_places(base.example.text)
    quotes = (base.example.evidence or {}).get(base.criterion.key, ())
    if quotes:
        quoted = [found.span() for quote in quotes for found in re.finditer(re.escape(quote), text)]
        return [(start, end) for start, end in places if any(a < end and start < b for a, b in quoted)]
    if not isinstance(base.criterion.scale, Binary):
        return []
    wanted = content_words(f"{base.criterion.text} {base.criterion.reference or ''}")
    shared = {(start, end): len(wanted & content_words(text[start:end])) for start, end in places}
    best = max(shared.values(), default=0)
    if best < max(2, _LEAST_SHARED * len(wanted)):
        return []
    return [place for place, count in shared.items() if count >= _NEARLY * best]


def _altered(base: GoodExample, places: list[Span]) -> Iterator[tuple[str, str]]:
    """Yield the text with a sentence that says something else: its negation, or another number or name."""
    text, criterion = base.example.text, base.criterion
    stated = _SAYS.match(criterion.text)
    named = content_words(f"{stated['statement'] if stated else ''} {criterion.reference or ''}")
    named |= {word for word in content_words(criterion.text) if word[0].isdigit()}
    for start, end in places[:1]:
        sentence = text[start:end]
        rng = random.Random(f"{criterion.question} {sentence}")
        for kind, altered in alterations(sentence, (), rng).items():
            gone = content_words(sentence) - content_words(altered)
            if (kind == "negated" and stated) or (kind not in ("negated", "order") and gone & named):
                yield kind, f"{text[:start]}{altered}{text[end:]}"


def _planted(rubric: Rubric, base: GoodExample) -> Iterator[tuple[str, str]]:
    """Yield the text with the fault: sentences of other examples (of the same prompt, if any), or what it says."""
    key, text = base.criterion.key, base.example.text
    others = [
        one
        for one in rubric.examples or ()
        if (expected := (one.verdicts or {}).get(key)) is not None and not is_good(base.criterion, expected)
    ]
    to_prompt = [one for one in others if one.prompt == base.example.prompt]
    for other in to_prompt or others:
        places = sentence_places(other.text)
        for quote in (other.evidence or {}).get(key, ()):
            at = other.text.find(quote)
            inside = [(start, end) for start, end in places if start < at + len(quote) and at < end]
            if inside:
                fault = other.text[inside[0][0] : inside[-1][1]]
                first = inside[0] == places[0] and len(places) > 1
                yield "planted", f"{fault} {text}" if first else _appended(text, fault)
    if found := _SAYS.match(base.criterion.text):
        statement = " ".join(found["statement"].split())
        yield "stated", _appended(text, f"{statement[:1].upper()}{statement[1:]}.")


def _appended(text: str, sentence: str) -> str:
    between = "\n\n" if "\n" in text.strip() else " "
    return f"{text.rstrip()}{between}{sentence}"
