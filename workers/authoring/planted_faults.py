"""The test of a rubric by a judge: its examples, and faults that are planted into good ones, to see which are caught.

By rule, the sentences that carry a criterion's content are deleted or altered, a fault is added, or a check is
violated.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Collection, Container, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

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
from workers.scoring.completions import score
from workers.scoring.questions import questions_of

OnDone = Callable[[], None]

_CITATION = re.compile(r"\s*\[[^\]\n]+\]")
_MARKUP = re.compile(r"(?m)^[ \t]*(?:#{1,6}|[-*+]|\d+[.)])[ \t]+|^[ \t]*\|.*\n?")
_FRENCH = "Cette réponse est écrite dans une autre langue que celle de la question, et elle le reste jusqu'à la fin."

_SEPARATORS = {"words": " ", "sentences": " ", "paragraphs": "\n\n", "characters": " "}
_UNITS: dict[str, Callable[[str], list[str]]] = {
    "words": str.split,
    "sentences": sentences,
    "paragraphs": lambda text: re.split(r"\n\s*\n", text.strip()),
    "characters": list,
}


def violations(check: Check, text: str) -> Iterator[str]:
    """Yield changed texts that the check should not accept; none for a check without a rule."""
    args: dict[str, Any] = check.args
    match check.name:
        case "words" | "sentences" | "paragraphs" | "characters":
            yield from _of_another_length(check.name, args, text)
        case "contains" if args.get("mode", "any") == "none":
            yield f"{text.rstrip()} {' '.join(map(str, args.get('terms', [])[:1]))}"
        case "contains":
            yield re.sub("|".join(map(re.escape, map(str, args.get("terms", [])))), "", text, flags=re.IGNORECASE)
        case "regex" if not args.get("absent"):
            yield re.sub(str(args.get("pattern", "")), "", text)
        case "headings" | "lists" | "tables":
            yield _MARKUP.sub("", text)
        case "cites" | "supported" | "quotes":
            yield _CITATION.sub("", text)
        case "language":
            yield _FRENCH
        case "format" | "json_schema":
            yield f"Here is the answer:\n{text[: len(text) // 2]}"


def _of_another_length(name: str, args: dict[str, Any], text: str) -> Iterator[str]:
    """Yield the text with less than half of the minimum, and with more than one and a half times the maximum."""
    between = "" if name == "characters" else _SEPARATORS[name]
    units = _UNITS[name](text)
    if least := args.get("min"):
        yield between.join(units[: int(0.4 * least)])
    if (most := args.get("max")) and units:
        times = int(1.6 * most) // len(units) + 1
        yield _SEPARATORS[name].join([text.strip()] * times) if name != "characters" else text * times


_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBER = re.compile(rf"(?<![\w`.:,/+-])(?:\d+|{'|'.join(_NUMBERS)})(?![\w`:/+-]|[.,]\d)")
_AUXILIARY = re.compile(r"\b(?:is|are|was|were|will|should|must|may|might|could|would|can)\b(?= \w)")
_NEGATION = re.compile(r"\b(can)not\b|\b(is|are|was|were|will|should|must|may|might|could|would|can) not\b")
_UNCLEAR = re.compile(r"\b(?:whether|all|every|each|any|no|none|neither|nothing|unless|never|only|either)\b", re.I)
_OPPOSITES = (
    ("before", "after"),
    ("more", "less"),
    ("above", "below"),
    ("first", "last"),
    ("always", "never"),
    ("increases", "decreases"),
    ("higher", "lower"),
    ("larger", "smaller"),
    ("allowed", "forbidden"),
    ("safe", "dangerous"),
    ("true", "false"),
    ("maximum", "minimum"),
)
_OPPOSITE = {word: other for pair in _OPPOSITES for word, other in (pair, pair[::-1])}


def alterations(sentence: str, rng: random.Random) -> dict[str, str]:
    """Return the sentence so that it says something else in almost the same words, by kind of alteration."""
    found: dict[str, str] = {}
    if negation := _NEGATION.search(sentence):
        found["negated"] = f"{sentence[: negation.start()]}{negation[1] or negation[2]}{sentence[negation.end() :]}"
    elif (auxiliary := _AUXILIARY.search(sentence)) and not _UNCLEAR.search(sentence[: auxiliary.start()]):
        word = "cannot" if auxiliary[0] == "can" else f"{auxiliary[0]} not"
        found["negated"] = f"{sentence[: auxiliary.start()]}{word}{sentence[auxiliary.end() :]}"
    if number := _NUMBER.search(sentence):
        near = (int(number[0]) + 1, int(number[0]) * 2, int(number[0]) * 10) if number[0].isdigit() else _NUMBERS
        other = rng.choice([str(one) for one in near if str(one) != number[0]])
        found["number"] = f"{sentence[: number.start()]}{other}{sentence[number.end() :]}"
    for match in re.finditer(r"[a-z]+", sentence):
        if opposite := _OPPOSITE.get(match[0]):
            found["opposite"] = f"{sentence[: match.start()]}{opposite}{sentence[match.end() :]}"
            break
    return found


def without(text: str, removed: Collection[tuple[int, int]]) -> str:
    """Return the text without these sentences; what is between the others stays."""
    places = sentence_places(text)
    kept = [place for place in places if place not in removed]
    parts: list[str] = []
    last = None
    for start, end in kept:
        if last is not None:
            before = max(other_end for _, other_end in places if other_end <= start)
            parts.append(text[before:start])
        parts.append(text[start:end])
        last = end
    return "".join(parts)


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


def carrying(base: GoodExample) -> list[tuple[int, int]]:
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


def _altered(base: GoodExample, places: list[tuple[int, int]]) -> Iterator[tuple[str, str]]:
    """Yield the text with a sentence that says something else: its negation, or another number or name."""
    text, criterion = base.example.text, base.criterion
    stated = _SAYS.match(criterion.text)
    named = content_words(f"{stated['statement'] if stated else ''} {criterion.reference or ''}")
    named |= {word for word in content_words(criterion.text) if word[0].isdigit()}
    for start, end in places[:1]:
        sentence = text[start:end]
        rng = random.Random(f"{criterion.question} {sentence}")
        for kind, altered in alterations(sentence, rng).items():
            gone = content_words(sentence) - content_words(altered)
            if (kind == "negated" and stated) or (kind != "negated" and gone & named):
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


class RubricTester:
    """Tests one rubric by one judge. ``prompt`` is that of the rubric; ``on_done`` is called after each text."""

    def __init__(
        self, engine: Engine, judge: Judge, rubric: Rubric, prompt: Prompt | None, *, on_done: OnDone = lambda: None
    ) -> None:
        self.judge, self.rubric, self.prompt, self.on_done = judge, rubric, prompt, on_done
        self._engine = engine

    async def run_examples(self, examples: Sequence[RubricExample]) -> list[ExampleTest]:
        """Return what the judge finds in each of these examples."""
        return list(await asyncio.gather(*map(self._run, examples)))

    async def verdicts(self, example: RubricExample, text: str, keys: Container[str]) -> list[Verdict]:
        """Return the verdicts on a text in place of the example's.

        Those on other criteria than ``keys`` are not asked for, and mean nothing.
        """
        fingerprints = questions_of(self.rubric, self.judge).fingerprints
        asked = {fingerprint for key, fingerprint in fingerprints.items() if key in keys}
        rest = {key: Verdict.abstained(key) for key, fingerprint in fingerprints.items() if fingerprint not in asked}
        prompt, completion = prompt_of(example, self.prompt), Completion(text=text)
        found = await score(self._engine, self.judge, self.rubric, prompt, completion, known=rest)
        self.on_done()
        return found

    async def _run(self, example: RubricExample) -> ExampleTest:
        wanted = self.rubric.by_key if example.reward is not None else example.verdicts or {}
        return _tested(self.rubric, example, await self.verdicts(example, example.text, wanted))


def check_testable(judge: Judge, rubric: Rubric, prompt: Prompt | None) -> None:
    """Raise an InvalidError unless the judge can be asked about each example by itself, and each has a prompt."""
    check_askable(judge)
    for one in rubric.examples or ():
        prompt_of(one, prompt)


def check_askable(judge: Judge) -> None:
    """Raise an InvalidError unless the judge can be asked about each text by itself."""
    for leaf in judge.leaf_judges:
        if leaf.mode not in ASKABLE:
            hint = "name a readout or written judge"
            raise InvalidError(f"judge {leaf.name!r} is {leaf.mode}; texts are judged one by one", hint=hint)


def prompt_of(example: RubricExample, prompt: Prompt | None) -> Prompt:
    """Return the prompt that the example answers: its own, or that of the rubric."""
    found = example.prompt or prompt
    if found is None:
        hint = "add `prompt` to the example, or to the rubric"
        raise InvalidError(f"example {example.key!r} has no prompt", hint=hint, path="examples.prompt")
    return found


def _tested(rubric: Rubric, example: RubricExample, verdicts: list[Verdict]) -> ExampleTest:
    by_key = {verdict.criterion: verdict for verdict in verdicts}
    tests = []
    for key, expected in (example.verdicts or {}).items():
        verdict, scale = by_key[key], rubric.by_key[key].scale
        passed = None
        if verdict.outcome != "failed":
            passed = verdict.value is not None and nearest_level(scale, verdict.value) in expected
        found = VerdictTest(criterion=key, expected=expected, found=verdict.value, passed=passed)
        tests.append(found.model_copy(update={"reason": reason_of(verdict)}))
    if example.reward is None:
        return ExampleTest(example=example.key, verdicts=tuple(tests))
    reward = reward_or_null(rubric, verdicts)
    failed = any(verdict.outcome == "failed" for verdict in verdicts)
    return ExampleTest(
        example=example.key,
        verdicts=tuple(tests),
        expected_reward=example.reward,
        reward=reward.value,
        null_reason=reward.null_reason,
        reward_passed=None if failed else reward.value is not None and reward.value in example.reward,
    )


def reason_of(verdict: Verdict) -> str | None:
    """Return why the verdict has no value; None if it has one."""
    if verdict.value is not None:
        return None
    return ": ".join(filter(None, (verdict.reason or verdict.outcome, verdict.detail)))


_Place = tuple[str, str]
"""The keys of an example and of a criterion."""

NO_BASE = "no example says that a completion is good by it"
NO_RULE = "no rule makes a fault: add `evidence` to an example"


async def catch_faults(tester: RubricTester, faults: Sequence[Fault]) -> list[FaultTest]:
    """Return what the judge finds in each text with a fault."""

    async def run(fault: Fault) -> FaultTest:
        base, key = fault.base, fault.base.criterion.key
        verdicts = await tester.verdicts(base.example, fault.text, {key})
        (verdict,) = (one for one in verdicts if one.criterion == key)
        return FaultTest(
            example=base.example.key,
            criterion=key,
            kind=fault.kind,
            text=fault.text,
            found=verdict.value,
            caught=None if verdict.outcome == "failed" else is_worse(base.criterion, base.expected, verdict.value),
            reason=reason_of(verdict),
        )

    return list(await asyncio.gather(*map(run, faults)))


def is_worse(criterion: Criterion, expected: NumberRange, value: float | None) -> bool:
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

    Args:
        rubric: The rubric.
        bases: Good examples, by criterion.
        found: Verdicts on the faults.
        examples: Verdicts on the examples themselves.
        min_catch: Least catch rate that passes.
    """
    alarms = _alarms(bases, examples)
    parts = []
    for key in rubric.by_key:
        own = [one for one in found if one.criterion == key]
        reason = NO_RULE if any(base.criterion.key == key for base in bases) else NO_BASE
        rates = _rates(own, {place: alarm for place, alarm in alarms.items() if place[1] == key})
        unmeasured = sum(one.caught is None for one in own)
        skipped = None if own else reason
        parts.append(CriterionFaults(criterion=key, unmeasured=unmeasured, skipped=skipped, **rates))
    return FaultReport(criteria=tuple(parts), faults=tuple(found), min_catch=min_catch, **_rates(found, alarms))


def _alarms(bases: Sequence[GoodExample], examples: Sequence[ExampleTest]) -> dict[_Place, bool | None]:
    """Return whether the judge saw a fault in each base without one; None: not measured."""
    values = {(one.example, verdict.criterion): verdict for one in examples for verdict in one.verdicts}
    alarms: dict[_Place, bool | None] = {}
    for base in bases:
        if (verdict := values.get((base.example.key, base.criterion.key))) is not None:
            worse = is_worse(base.criterion, base.expected, verdict.found)
            alarms[base.example.key, base.criterion.key] = None if verdict.passed is None else worse
    return alarms


def _rates(found: Sequence[FaultTest], alarms: Mapping[_Place, bool | None]) -> dict[str, Rate]:
    """Return the rates of faults that were caught, of those caught where no fault was seen before, and of alarms."""
    caught = [one for one in found if one.caught is not None]
    unseen = [one for one in caught if alarms.get((one.example, one.criterion), False) is False]
    measured = [alarm for alarm in alarms.values() if alarm is not None]
    return {
        "caught": rate(sum(one.caught is True for one in caught), len(caught)),
        "noticed": rate(sum(one.caught is True for one in unseen), len(unseen)),
        "false_alarms": rate(sum(measured), len(measured)),
    }


Result = TypeVar("Result")
Action = Callable[[Engine], Coroutine[Any, Any, Result]]


class Ask(Protocol):
    """Runs an action with the engine of a judge."""

    def __call__(self, judge: Judge, action: Action[Result], /) -> Result:
        """Return the result of the action."""


Progress = Callable[[str, int], AbstractContextManager[OnDone]]
"""Shows the progress of so many texts; what it gives is called after each."""


@dataclass(frozen=True)
class RubricTestRun:
    """Tests one rubric by one judge; ``prompt`` is that of the rubric."""

    rubric: Rubric
    prompt: Prompt | None
    judge: Judge
    ask: Ask
    progress: Progress

    def run(self, *, faults: bool = False, min_catch: float | None = None) -> RubricTest:
        """Ask the judge about the examples, then about faults; a criterion fails below ``min_catch``."""
        check_testable(self.judge, self.rubric, self.prompt)
        examples = self.rubric.examples or ()
        tests = self._asked("examples", len(examples), lambda tester: tester.run_examples(examples))
        return RubricTest(
            judge=self.judge.name,
            judge_digest=self.judge.digest,
            rubric_digest=self.rubric.digest,
            examples=tuple(tests),
            faults=self._fault_report(tests, min_catch) if faults or min_catch is not None else None,
        )

    def _asked(
        self, what: str, total: int, action: Callable[[RubricTester], Coroutine[Any, Any, list[Result]]]
    ) -> list[Result]:
        if not total:
            return []
        with self.progress(what, total) as on_done:

            def run(engine: Engine) -> Coroutine[Any, Any, list[Result]]:
                return action(RubricTester(engine, self.judge, self.rubric, self.prompt, on_done=on_done))

            return self.ask(self.judge, run)

    def _fault_report(self, tests: Sequence[ExampleTest], min_catch: float | None) -> FaultReport:
        """Plant faults into the good examples, and ask the judge about them."""
        bases = good_examples(self.rubric)
        faults = [fault for base in bases for fault in faults_by_rule(self.rubric, base)]
        caught = self._asked("faults", len(faults), lambda tester: catch_faults(tester, faults))
        return fault_report(self.rubric, bases, caught, tests, min_catch=min_catch)
