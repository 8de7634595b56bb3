"""The test of a rubric by a judge: its examples, and faults that are planted into good ones, to see which are caught.

By rule, the sentences that carry a criterion's content are deleted or altered, a fault is added, or a check is
violated. To add a rule for a check, add it to a table below or to `violations`.
"""

import asyncio
import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rubricsvc.core.audit import Rate
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import reward_or_null
from rubricsvc.core.rubric import Binary, Check, Criterion, NumberRange, Rubric, RubricExample, nearest_level
from rubricsvc.core.rubric_analysis import CriterionFaults, ExampleTest, FaultReport, FaultTest, RubricTest, VerdictTest
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from rubricsvc.lint.duplicates import content_words
from rubricsvc.stats.intervals import rate
from workers.authoring.gate import ASKABLE, sentence_places, sentences
from workers.engines.base import Engine
from workers.scoring.completions import questions_of, score

_UNITS: dict[str, tuple[Callable[[str], list[str]], str]] = {
    "words": (str.split, " "),
    "sentences": (sentences, " "),
    "paragraphs": (lambda text: re.split(r"\n\s*\n", text), "\n\n"),
    "characters": (list, ""),
}
"""What a check of length counts, and what stands between two of them."""

_CITATION = re.compile(r"\s*\[[^\]\n]+\]")
_MARKUP = re.compile(r"(?m)^[ \t]*(?:#{1,6}|[-*+]|\d+[.)])[ \t]+|^[ \t]*\|.*\n?")
_REMOVED = dict.fromkeys(("headings", "lists", "tables"), _MARKUP)
_REMOVED |= dict.fromkeys(("cites", "supported", "quotes"), _CITATION)
"""What a check looks for: without it a text violates the check."""

_FRENCH = "Cette réponse est écrite dans une autre langue que celle de la question, et elle le reste jusqu'à la fin."


def violations(check: Check, text: str) -> Iterator[str]:
    """Yield changed texts that the check should not accept; none for a check without a rule.

    Of a length: less than half of the minimum, and more than one and a half times the maximum.
    """
    args: dict[str, Any] = check.args
    terms = list(map(str, args.get("terms", [])))
    match check.name:
        case name if name in _UNITS:
            split, between = _UNITS[name]
            units = split(text.strip())
            if least := args.get("min"):
                yield between.join(units[: int(0.4 * least)])
            if (most := args.get("max")) and units:
                yield between.join([text.strip()] * (int(1.6 * most) // len(units) + 1))
        case name if name in _REMOVED:
            yield _REMOVED[name].sub("", text)
        case "contains" if args.get("mode", "any") == "none":
            yield f"{text.rstrip()} {' '.join(terms[:1])}"
        case "contains":
            yield re.sub("|".join(map(re.escape, terms)), "", text, flags=re.IGNORECASE)
        case "regex" if not args.get("absent"):
            yield re.sub(str(args.get("pattern", "")), "", text)
        case "language":
            yield _FRENCH
        case "format" | "json_schema":
            yield f"Here is the answer:\n{text[: len(text) // 2]}"


_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBER = re.compile(rf"(?<![\w`.:,/+-])(?:\d+|{'|'.join(_NUMBERS)})(?![\w`:/+-]|[.,]\d)")
_AUXILIARY = re.compile(r"\b(?:is|are|was|were|will|should|must|may|might|could|would|can)\b(?= \w)")
_NEGATION = re.compile(r"\b(can)not\b|\b(is|are|was|were|will|should|must|may|might|could|would|can) not\b")
_UNCLEAR = re.compile(r"\b(?:whether|all|every|each|any|no|none|neither|nothing|unless|never|only|either)\b", re.I)
_OPPOSITES = (
    "before/after more/less above/below first/last always/never increases/decreases higher/lower larger/smaller"
    " allowed/forbidden safe/dangerous true/false maximum/minimum"
)
_PAIRS = [pair.split("/") for pair in _OPPOSITES.split()]
_OPPOSITE = {word: other for pair in _PAIRS for word, other in (pair, pair[::-1])}

_LEAST_SHARED = 0.3  # share of a criterion's words that the sentence which carries it has
_NEARLY = 0.75  # a sentence carries it too if it shares this part of what the best one shares

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
        if _is_good(rubric.by_key[key], expected)
    ]


def _is_good(criterion: Criterion, expected: NumberRange) -> bool:
    """Return whether a worse verdict than these is possible: a lower one, of a pitfall a higher one."""
    if criterion.weight < 0:
        return expected.max is not None and expected.max < 1.0
    return expected.min is not None and expected.min > 0.0


def faults_by_rule(rubric: Rubric, base: GoodExample) -> list[Fault]:
    """Return the completion of the base with one fault each, by all rules that apply; there may be none."""
    criterion, text = base.criterion, base.example.text
    broken: list[tuple[str, str]] = []
    if criterion.weight < 0:
        broken += _planted(rubric, base)
    elif criterion.check is not None:
        broken += (("check", changed) for changed in violations(criterion.check, text))
    elif carried := _carrying(base):
        kept, last = "", 0
        for start, end in sentence_places(text):
            if (start, end) not in carried:
                kept += text[last if kept else start : end]
            last = end
        broken += [("deleted", kept), *_altered(base, *carried[0])]
    found: dict[str, str] = {}
    for kind, changed in broken:
        if changed.strip() != text.strip():
            found.setdefault(changed, kind)
    return [Fault(base, kind, changed) for changed, kind in found.items()]


def _carrying(base: GoodExample) -> list[tuple[int, int]]:
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


def _altered(base: GoodExample, start: int, end: int) -> Iterator[tuple[str, str]]:
    """Yield the text with this sentence saying something else in almost the same words, with the kind of alteration.

    Its negation counts for a criterion on a statement; another number or word if the criterion names what is gone.
    """
    text, criterion = base.example.text, base.criterion
    sentence = text[start:end]
    changes: list[tuple[str, re.Match[str], str]] = []
    if negation := _NEGATION.search(sentence):
        changes.append(("negated", negation, negation[1] or negation[2]))
    elif (auxiliary := _AUXILIARY.search(sentence)) and not _UNCLEAR.search(sentence[: auxiliary.start()]):
        changes.append(("negated", auxiliary, "cannot" if auxiliary[0] == "can" else f"{auxiliary[0]} not"))
    if number := _NUMBER.search(sentence):
        near = (int(number[0]) + 1, int(number[0]) * 2, int(number[0]) * 10) if number[0].isdigit() else _NUMBERS
        others = [str(one) for one in near if str(one) != number[0]]
        changes.append(("number", number, random.Random(f"{criterion.question} {sentence}").choice(others)))
    if word := next((found for found in re.finditer(r"[a-z]+", sentence) if found[0] in _OPPOSITE), None):
        changes.append(("opposite", word, _OPPOSITE[word[0]]))
    stated = _SAYS.match(criterion.text)
    named = content_words(f"{stated['statement'] if stated else ''} {criterion.reference or ''}")
    named |= {word for word in content_words(criterion.text) if word[0].isdigit()}
    for kind, old, new in changes:
        altered = f"{sentence[: old.start()]}{new}{sentence[old.end() :]}"
        gone = content_words(sentence) - content_words(altered)
        if stated if kind == "negated" else gone & named:
            yield kind, f"{text[:start]}{altered}{text[end:]}"


def _planted(rubric: Rubric, base: GoodExample) -> Iterator[tuple[str, str]]:
    """Yield the text with the fault: sentences of other examples (of the same prompt, if any), or what it says."""
    key, text = base.criterion.key, base.example.text
    before = f"{text.rstrip()}\n\n" if "\n" in text.strip() else f"{text.rstrip()} "
    others = [
        one
        for one in rubric.examples or ()
        if (expected := (one.verdicts or {}).get(key)) is not None and not _is_good(base.criterion, expected)
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
                yield "planted", f"{fault} {text}" if first else before + fault
    if found := _SAYS.match(base.criterion.text):
        statement = " ".join(found["statement"].split())
        yield "stated", f"{before}{statement[:1].upper()}{statement[1:]}."


Progress = Callable[[int, str], Callable[[], None]]
"""Begins to show the progress of so many texts of a kind; what it returns is called after each."""

NO_BASE = "no example says that a completion is good by it"
NO_RULE = "no rule makes a fault: add `evidence` to an example"


async def run_tests(
    engine: Engine,
    judge: Judge,
    rubric: Rubric,
    prompt: Prompt | None,
    progress: Progress,
    *,
    faults: bool = False,
    min_catch: float | None = None,
) -> RubricTest:
    """Return what the judge finds in the examples of a rubric, whose prompt is ``prompt``, then in planted faults.

    A criterion of whose faults a smaller share than ``min_catch`` is caught fails. It is an InvalidError if the judge
    cannot be asked about each text by itself, or an example has no prompt.
    """
    for leaf in judge.leaf_judges:
        if leaf.mode not in ASKABLE:
            hint = "name a readout or written judge"
            raise InvalidError(f"judge {leaf.name!r} is {leaf.mode}; texts are judged one by one", hint=hint)
    examples = rubric.examples or ()
    prompts = {one.key: found for one in examples if (found := one.prompt or prompt)}
    for one in examples:
        if one.key not in prompts:
            hint = "add `prompt` to the example, or to the rubric"
            raise InvalidError(f"example {one.key!r} has no prompt", hint=hint, path="examples.prompt")
    fingerprints = questions_of(rubric, judge).fingerprints

    async def verdicts_on(example: RubricExample, text: str, keys: Collection[str]) -> list[Verdict]:
        """Return the verdicts on a text in place of the example's; those that ``keys`` do not need mean nothing."""
        asked = {fingerprint for key, fingerprint in fingerprints.items() if key in keys}
        rest = {key: Verdict.abstained(key) for key, fingerprint in fingerprints.items() if fingerprint not in asked}
        found = await score(engine, judge, rubric, prompts[example.key], Completion(text=text), known=rest)
        on_done()
        return found

    async def test_example(one: RubricExample) -> ExampleTest:
        """Return an example's verdicts and its reward, beside the expected ones."""
        wanted: Collection[str] = rubric.by_key if one.reward is not None else one.verdicts or {}
        verdicts = await verdicts_on(one, one.text, wanted)
        by_key = {verdict.criterion: verdict for verdict in verdicts}
        tests = []
        for key, expected in (one.verdicts or {}).items():
            verdict, passed = by_key[key], None
            if verdict.outcome != "failed":
                scale = rubric.by_key[key].scale
                passed = verdict.value is not None and nearest_level(scale, verdict.value) in expected
            found = VerdictTest(criterion=key, expected=expected, found=verdict.value, passed=passed)
            why = {"reason": _reason_of(verdict), "rationale": verdict.rationale}
            tests.append(found.model_copy(update=why | {"quotes": tuple(one.quote for one in verdict.evidence)}))
        test = ExampleTest(example=one.key, verdicts=tuple(tests), expected_reward=one.reward)
        if one.reward is None:
            return test
        reward = reward_or_null(rubric, verdicts)
        failed = any(verdict.outcome == "failed" for verdict in verdicts)
        passed = None if failed else reward.value is not None and reward.value in one.reward
        found_reward = {"reward": reward.value, "null_reason": reward.null_reason, "reward_passed": passed}
        return test.model_copy(update=found_reward)

    async def test_fault(fault: Fault) -> FaultTest:
        base, key = fault.base, fault.base.criterion.key
        found = {one.criterion: one for one in await verdicts_on(base.example, fault.text, {key})}[key]
        caught = None if found.outcome == "failed" else _is_worse(base.criterion, base.expected, found.value)
        test = FaultTest(example=base.example.key, criterion=key, kind=fault.kind, text=fault.text, caught=caught)
        return test.model_copy(update={"found": found.value, "reason": _reason_of(found)})

    on_done = progress(len(examples), "examples")
    tests = tuple(await asyncio.gather(*map(test_example, examples)))
    report = None
    if faults or min_catch is not None:
        bases = good_examples(rubric)
        planted = [fault for base in bases for fault in faults_by_rule(rubric, base)]
        if planted:
            on_done = progress(len(planted), "faults")
        caught = await asyncio.gather(*map(test_fault, planted))
        report = fault_report(rubric, bases, caught, tests, min_catch=min_catch)
    digests = {"judge_digest": judge.digest, "rubric_digest": rubric.digest}
    return RubricTest(judge=judge.name, examples=tests, faults=report, **digests)


def _reason_of(verdict: Verdict) -> str | None:
    """Return why the verdict has no value; None if it has one."""
    if verdict.value is not None:
        return None
    return ": ".join(filter(None, (verdict.reason or verdict.outcome, verdict.detail)))


def _is_worse(criterion: Criterion, expected: NumberRange, value: float | None) -> bool:
    """Return whether a verdict is worse than expected: lower, of a pitfall higher. An abstention is not."""
    if value is None:
        return False
    found = nearest_level(criterion.scale, value)
    if criterion.weight < 0:
        return found not in NumberRange(max=expected.max)
    return found not in NumberRange(min=expected.min)


def fault_report(
    rubric: Rubric,
    bases: Sequence[GoodExample],
    found: Sequence[FaultTest],
    examples: Sequence[ExampleTest],
    *,
    min_catch: float | None = None,
) -> FaultReport:
    """Return the catch rate of each criterion, and how often the judge saw a fault in a base without one.

    ``found`` are the verdicts on the faults, ``examples`` those on the examples themselves.
    """
    values = {(one.example, verdict.criterion): verdict for one in examples for verdict in one.verdicts}
    alarms: dict[tuple[str, str], bool | None] = {}
    for base in bases:
        place = base.example.key, base.criterion.key
        if (verdict := values.get(place)) is not None:
            worse = _is_worse(base.criterion, base.expected, verdict.found)
            alarms[place] = None if verdict.passed is None else worse
    parts = []
    for key in rubric.by_key:
        own = [one for one in found if one.criterion == key]
        reason = NO_RULE if any(base.criterion.key == key for base in bases) else NO_BASE
        rates = _rates(own, {place: alarm for place, alarm in alarms.items() if place[1] == key})
        unmeasured = sum(one.caught is None for one in own)
        skipped = None if own else reason
        parts.append(CriterionFaults(criterion=key, unmeasured=unmeasured, skipped=skipped, **rates))
    return FaultReport(criteria=tuple(parts), faults=tuple(found), min_catch=min_catch, **_rates(found, alarms))


def _rates(found: Sequence[FaultTest], alarms: Mapping[tuple[str, str], bool | None]) -> dict[str, Rate]:
    """Return the rates of faults that were caught, of those caught where no fault was seen before, and of alarms.

    ``alarms``: whether the judge saw a fault in each base without one, by the keys of its example and its criterion;
    None: not measured.
    """
    caught = [one for one in found if one.caught is not None]
    unseen = [one for one in caught if alarms.get((one.example, one.criterion), False) is False]
    measured = [alarm for alarm in alarms.values() if alarm is not None]
    return {
        "caught": rate(sum(one.caught is True for one in caught), len(caught)),
        "noticed": rate(sum(one.caught is True for one in unseen), len(unseen)),
        "false_alarms": rate(sum(measured), len(measured)),
    }
