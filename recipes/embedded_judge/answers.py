"""Answers with known faults: those of another question, damaged ones, everyday ones with contraries, wrong solutions.

The right solution of a word problem, or its result, is the reference of the prompt. ``arithmetic.yaml`` has the
problems; numbers and names are drawn, and the solutions of one problem are on one side of a split. A wrong solution has
a slip in one of its steps, and goes on with the wrong number, or states another result than it found: right and wrong
ones have the same words.
"""

from __future__ import annotations

import math
import operator
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any, NamedTuple

from recipes.embedded_judge import load_yaml
from recipes.embedded_judge.alterations import sentences
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion
from rubricsvc.errors import InvalidError, cut
from trainer.judge_training.data import Example, Target

TEXTS = load_yaml("wordings.yaml")
"""Wordings of criteria, answers and prompts, and sentences that say nothing (``filler``)."""


@dataclass(frozen=True, slots=True)
class Wordings:
    """What is asked in several ways: ``met`` where the property holds, ``unmet`` where it does not."""

    family: str
    met: tuple[str, ...]
    unmet: tuple[str, ...]

    def sample(self, rng: Random, *, negated: bool) -> str:
        """Return one of the wordings, some with a full stop."""
        text = rng.choice(self.unmet if negated else self.met)
        return f"{text}." if rng.random() < 0.5 else text


COMPLETE, READABLE, CONCISE, ON_TOPIC, RIGHT = (
    Wordings(family, **{name: tuple(texts) for name, texts in TEXTS["properties"][family].items()})
    for family in ("complete", "readable", "concise", "on_topic", "right_result")
)


def damaged(examples: Sequence[Example], seed: int, count: int, *, negated: float) -> Iterator[Example]:
    """Yield ``count`` examples, half of them damaged: cut off, with their words in a random order, or padded.

    Each is asked about in wordings that are met where the damage is and in as many that are met where it is not.

    Args:
        examples: Prompts with good completions; their targets are ignored.
        seed: Seed of all choices.
        count: Number of examples.
        negated: Share of the criteria that a damaged completion meets.

    Raises:
        InvalidError: No completion has a sentence of eight words.
    """
    rng = Random(f"damaged {seed}")
    pool = [example for example in examples if any(len(s.split()) >= 8 for s in sentences(example.completion.text))]
    pool = sorted((e for e in pool if e.completion.text.strip()[-1] in ".!?"), key=lambda example: example.content)
    if not pool:
        raise InvalidError("no completion with a sentence of eight words")
    for number in range(count):
        example, harm = rng.choice(pool), number % 2 == 1
        if number // 2 % 3 == 0:
            text = example.completion.text
            if harm and rng.random() < 0.3:  # words in a random order, within each sentence
                text = " ".join(" ".join(rng.sample(part := one.split(), len(part))) for one in sentences(text))
            elif harm:  # or over all of them, some with the capital and the full stop of a sentence
                text = " ".join(rng.sample(words := text.split(), len(words)))
                if rng.random() < 0.5:
                    text = f"{' '.join(word.strip('.,;!?').lower() for word in text.split()).capitalize()}."
            yield _example(example, text, {READABLE: not harm}, negated, rng)
            continue
        cut, padded = harm, rng.random() < 0.5
        text = example.completion.text
        if padded:  # some of the sentences, with two to four of filler
            parts = sentences(text)
            if len(parts) > 1 and rng.random() < 0.6:
                parts = parts[: rng.randint(1, len(parts) - 1)]
            for filler in rng.sample(TEXTS["filler"], rng.randint(2, 4)):
                parts.insert(rng.randint(0, len(parts)), filler)
            text = " ".join(parts)
        text = _cut(text, rng) if cut else text if rng.random() < 0.85 else text.rstrip(".")
        yield _example(example, text, {COMPLETE: not cut, CONCISE: not padded}, negated, rng)


def _cut(text: str, rng: Random) -> str:
    """Return the text up to the middle of a sentence; some end with a full stop after a word such as "the"."""
    parts = sentences(text)
    long = [n for n, part in enumerate(parts) if len(part.split()) >= 6]
    at = rng.choice(long or [len(parts) - 1])
    words = parts[at].split()
    dangling = [n for n in range(2, len(words) - 1) if words[n].lower() in TEXTS["dangling"].split()]
    if dangling and rng.random() < 0.4:
        last = [*words[: rng.choice(dangling) + 1]]
        ending = rng.choice((".", ".", "...", ""))
    else:
        last, ending = words[: rng.randint(2, max(2, len(words) - 2))], ""
        last[-1] = last[-1].rstrip(".,;:!?")
        if rng.random() < 0.3 and len(last[-1]) > 4:
            last[-1] = last[-1][: rng.randint(2, len(last[-1]) - 2)]
    return " ".join([*parts[:at], *last]) + ending


def _example(example: Example, text: str, properties: dict[Wordings, bool], share: float, rng: Random) -> Example:
    targets: list[Target] = []
    for wordings, holds in properties.items():
        for negated in (rng.random() < share, rng.random() < share):
            criterion = Criterion(key=f"c{len(targets) + 1}", text=wordings.sample(rng, negated=negated))
            variant = "whole" if holds else "damaged"
            targets.append(Target(criterion, float(holds != negated), family=wordings.family, variant=variant))
    completion = Completion(text=text)
    return Example(example.prompt, completion, tuple(targets), "damaged", example.split_group)


_MIN_WORDS = 5
"""Shorter completions ("Yes", "I have no comment") may fit many questions; they are left out."""


def swapped(examples: Sequence[Example], seed: int, count: int, *, negated: float) -> Iterator[Example]:
    """Yield ``count`` examples: a prompt with its own completion or with that of another prompt, half each.

    Half of the foreign completions are near: of the prompts that share the most words with the prompt or its own
    completion, one whose own completion is different. So each completion is met and unmet alike, and overlap of words
    decides less.

    Args:
        examples: Prompts with completions that answer them; their targets are ignored.
        seed: Seed of all choices.
        count: Number of examples.
        negated: Share of the criteria that a completion of another prompt meets.

    Raises:
        InvalidError: There are fewer than two different prompts.
    """
    rng = Random(f"swapped {seed}")
    long = (example for example in examples if len(example.completion.text.split()) >= _MIN_WORDS)
    pool = sorted(long, key=lambda example: example.content)
    neighbours = Neighbours(pool)
    if len(neighbours.groups) < 2:
        raise InvalidError(f"answers of {len(neighbours.groups)} prompts cannot be swapped", hint="pass two or more")
    order: list[int] = []
    for number in range(count):
        if not order:
            order = rng.sample(range(len(pool)), len(pool))
        # two examples in a row share their completion: once with its own prompt, once with another one
        at = order[-1] if number % 2 == 0 else order.pop()
        if number % 2 == 0:
            prompt, variant = pool[at], "own"
        elif rng.random() < 0.5:
            prompt, variant = pool[neighbours.near(at, rng)], "near"
        else:
            prompt, variant = pool[neighbours.far(at, rng)], "far"
        same, targets = Random(pool[at].content), []  # for both prompts of a completion: it meets half of its criteria
        for n, worded in enumerate((same.random() < negated, same.random() < negated), 1):
            criterion = Criterion(key=f"c{n}", text=ON_TOPIC.sample(rng, negated=worded))
            met = float((variant == "own") != worded)
            targets.append(Target(criterion, met, family=ON_TOPIC.family, variant=variant))
        completion = Completion(text=pool[at].completion.text)
        yield Example(prompt.prompt, completion, tuple(targets), "swapped", group=prompt.split_group)


_WORD = re.compile(r"\w{3,}")
_NEAREST = 3
_DRAWS = 100
_SAME = 0.7
"""Prompts or completions that share as much may mean the same."""


def _shared_words(one: str, other: str) -> float:
    """Return the share of the first text's distinct words of three letters or more that the other has."""
    words = set(_WORD.findall(one.casefold()))
    return len(words & set(_WORD.findall(other.casefold()))) / len(words) if words else 0.0


class Neighbours:
    """For each completion the prompts of other groups, near ones and far ones, by words weighted by their rarity."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self.groups = list(dict.fromkeys(example.split_group for example in examples))
        self._examples = examples
        self._words = [sorted(set(_WORD.findall(example.prompt.text.casefold()))) for example in examples]
        self._postings: dict[str, list[int]] = defaultdict(list)
        for at, words in enumerate(self._words):
            for word in words:
                self._postings[word].append(at)
        self._nearest: dict[int, list[int]] = {}

    def far(self, at: int, rng: Random) -> int:
        """Return a random example of another group.

        Raises:
            InvalidError: All others ask or say much the same.
        """
        for _ in range(_DRAWS):
            other = rng.randrange(len(self._examples))
            if self._differs(at, other):
                return other
        others = [other for other in range(len(self._examples)) if self._differs(at, other)]
        if not others:
            prompt = cut(repr(self._examples[at].prompt.text), 60)
            raise InvalidError(f"no prompt and completion differ from {prompt}", hint="pass more varied examples")
        return rng.choice(others)

    def near(self, at: int, rng: Random) -> int:
        """Return one of the examples of other groups whose prompts share the most with this prompt and completion."""
        if nearest := self._nearest.get(at):
            return rng.choice(nearest)
        example = self._examples[at]
        own = sorted(set(_WORD.findall(f"{example.prompt.text} {example.completion.text}".casefold())))
        scores: dict[int, float] = defaultdict(float)
        for word in own:
            postings = self._postings.get(word, [])
            if 1 <= len(postings) <= len(self._examples) / 4:
                weight = math.log(len(self._examples) / len(postings))
                for other in postings:
                    scores[other] += weight / math.sqrt(len(self._words[other]))
        ranked = sorted((-score, other) for other, score in scores.items() if self._differs(at, other))
        first: dict[str, int] = {}
        for _, other in ranked:
            first.setdefault(self._examples[other].split_group, other)
            if len(first) == _NEAREST:
                break
        self._nearest[at] = list(first.values())
        return rng.choice(self._nearest[at] or [self.far(at, rng)])

    def _differs(self, at: int, other: int) -> bool:
        """Return whether the second prompt is another question, which the first completion does not answer."""
        one, two = self._examples[at], self._examples[other]
        return (
            one.split_group != two.split_group
            and _shared_words(two.prompt.text, one.prompt.text) < _SAME
            and _shared_words(one.completion.text, two.completion.text) < _SAME
        )


_VARIANTS = ("both", "both", "both", "first", "second", "contrary", "contrary_alone", "near", "empty_phrases")
"""Criteria are met by half of them."""


_WITH_REFERENCE = 0.3
"""How often the whole answer is shown as the reference of the prompt."""

_STATED = 0.4
"""How often the prompt itself states one or both sentences of the answer."""


class Entry(NamedTuple):
    """A question, the two sentences of its answer, and the criterion that each of them meets.

    ``contrary`` is a sentence in the place of the one with the index ``contradicted``.
    """

    question: str
    answer: str
    criteria: tuple[str, ...]
    contrary: str
    contradicted: int


@cache
def entries() -> tuple[Entry, ...]:
    """Return the entries of ``everyday.txt``, four lines each, under headings.

    The lines are the question, the answer, the two criteria, and the contrary of sentence 1 or 2 after that number.
    """
    text = files(__package__).joinpath("everyday.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("# ")]
    return tuple(
        Entry(question, answer, tuple(criteria.split(" | ")), contrary[2:], int(contrary[0]) - 1)
        for question, answer, criteria, contrary in zip(*(lines[n::4] for n in range(4)), strict=True)
    )


def everyday_answers() -> list[Example]:
    """Return the questions with their answers, without targets."""
    return [
        Example(Prompt.of(entry.question), Completion(text=entry.answer), (), source="everyday") for entry in entries()
    ]


def everyday_criteria(seed: int, count: int) -> Iterator[Example]:
    """Yield ``count`` examples: a question, and a completion with both, one or none of the sentences of its answer.

    Where the completion has the sentence that has a contrary, or that contrary, one of the two is asked about in full.
    Completions with none are the contrary of one, the answer to a question that shares words with it, or empty phrases.
    """
    rng = Random(f"everyday {seed}")
    answers = everyday_answers()
    neighbours = Neighbours(answers)
    order: list[tuple[int, str]] = []
    for _ in range(count):
        if not order:
            order = [(at, variant) for at in range(len(entries())) for variant in rng.sample(_VARIANTS, 5)]
            rng.shuffle(order)
        at, variant = order.pop()
        entry = entries()[at]
        parts = sentences(entry.answer)
        match variant:
            case "both":
                kept = parts if rng.random() < 0.8 else parts[::-1]
            case "first" | "second":
                kept = [parts[variant == "second"]]
            case "contrary" | "contrary_alone":
                kept = [entry.contrary if n == entry.contradicted else part for n, part in enumerate(parts)]
                kept = kept if variant == "contrary" else [entry.contrary]
            case "near":
                kept = sentences(entries()[neighbours.near(at, rng)].answer)
            case _:
                kept = rng.sample(TEXTS["filler"], rng.randint(2, 3))
        if len(kept) == 1 and rng.random() < 0.6:  # as long as the others
            kept.insert(rng.randint(0, 1), rng.choice(TEXTS["filler"]))
        targets = [
            Target(Criterion(key=f"c{n + 1}", text=text), float(parts[n] in kept), variant=variant)
            for n, text in enumerate(entry.criteria)
        ]
        present = [part for part in (parts[entry.contradicted], entry.contrary) if part in kept]
        if present:
            asked = rng.choice((parts[entry.contradicted], entry.contrary))
            criterion = Criterion(key="c3", text=rng.choice(TEXTS["sentence"]).format(asked))
            targets.append(Target(criterion, float(asked in present), family="everyday_sentence", variant=variant))
        reference = entry.answer if rng.random() < _WITH_REFERENCE else None
        if reference and variant in ("both", "contrary", "contrary_alone"):
            criterion = Criterion(key="c4", text=rng.choice(TEXTS["agrees"]))
            targets.append(Target(criterion, float(variant == "both"), family="agrees", variant=variant))
        rng.shuffle(targets)
        text = "\n".join(f"- {part}" for part in kept) if rng.random() < 0.1 else " ".join(kept)
        # a reference does not decide the other criteria, which are on what the completion says
        asked_of = entry.question
        if rng.random() < _STATED:
            facts = entry.answer if rng.random() < 0.7 else rng.choice(parts)
            asked_of = rng.choice(TEXTS["tasks"]).format(question=entry.question, facts=facts)
        prompt, group = Prompt.of(asked_of, reference=reference), answers[at].split_group
        yield Example(prompt, Completion(text=text), tuple(targets), "everyday", group=group)


_OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


class _Step(NamedTuple):
    """A calculation ``left op right`` whose result has a name, and the sentence that states it."""

    name: str
    calculation: str
    sentence: str

    def value(self, known: Mapping[str, Any]) -> int:
        left, sign, right = self.calculation.split()
        return int(_OPERATORS[sign](known[left], known[right]))

    def equation(self, known: Mapping[str, Any]) -> str:
        left, sign, right = self.calculation.split()
        return f"{known[left]} {sign} {known[right]} = {known[self.name]}"


class _Solution(NamedTuple):
    """The sentences and the equations of a worked solution, and the number that it ends with."""

    sentences: list[str]
    equations: list[str]
    result: int


def arithmetic(seed: int, count: int, *, negated: float) -> Iterator[Example]:
    """Yield ``count`` examples: a word problem with its solution as reference, and a right or a wrong solution.

    Two examples in a row have the same problem with the same numbers, and one of them is right.
    """
    rng = Random(f"arithmetic {seed}")
    problems = load_yaml("arithmetic.yaml")
    for number in range(count):
        if number % 2 == 0:
            problem = rng.choice(problems)
            steps = [_Step(*step) for step in problem["steps"]]
            first, second = rng.sample(TEXTS["names"].split(), 2)
            given = {name: rng.randint(*ends) for name, ends in problem["numbers"].items()} | {"N": first, "M": second}
            right = _solve(steps, given)
            order = rng.sample((True, False), 2)
        solution = right if order[number % 2] else _wrong(steps, given, right, rng)
        shown = _written(right, rng) if rng.random() < 0.6 else str(right.result)
        prompt = Prompt.of(problem["question"].format(**given), reference=shown)
        correct, worded = solution.result == right.result, rng.random() < negated
        asked = [(RIGHT.sample(rng, negated=worded), correct != worded, RIGHT.family)]
        named = rng.choice((solution.result, right.result, solution.result + rng.choice((-10, -1, 1, 10))))
        asked.append((rng.choice(TEXTS["stated_result"]).format(named), named == solution.result, "stated_result"))
        rng.shuffle(asked)
        targets = tuple(
            Target(
                Criterion(key=f"c{n}", text=text), float(met), family=family, variant="right" if correct else "wrong"
            )
            for n, (text, met, family) in enumerate(asked, 1)
        )
        completion = Completion(text=_written(solution, rng))
        yield Example(prompt, completion, targets, "arithmetic", group=problem["question"])


def _solve(steps: list[_Step], given: Mapping[str, Any], slip: int = -1, by: int = 0) -> _Solution:
    """Return the solution. The step with the number ``slip`` is wrong ``by`` so much; the next ones use its result."""
    known = dict(given)
    for number, step in enumerate(steps):
        known[step.name] = step.value(known) + (by if number == slip else 0)
    sentences = [step.sentence.format(**known) for step in steps]
    return _Solution(sentences, [step.equation(known) for step in steps], known[steps[-1].name])


def _wrong(steps: list[_Step], given: Mapping[str, Any], right: _Solution, rng: Random) -> _Solution:
    """Return a solution with another result."""
    by = rng.choice((-10, -3, -2, -1, 1, 2, 3, 10, 20))
    if rng.random() < 0.15:  # a right way to a wrong number
        return right._replace(result=right.result + by)
    slipped = _solve(steps, given, rng.randrange(len(steps)), by)
    return slipped if slipped.result != right.result else _solve(steps, given, len(steps) - 1, by)


def _written(solution: _Solution, rng: Random) -> str:
    """Return a solution as a text: sentences or equations, then the result; or the result alone."""
    ending: str = rng.choice(TEXTS["endings"]).format(solution.result)
    form = rng.random()
    if form < 0.15:
        return ending
    lines = solution.equations if form < 0.4 else solution.sentences
    return ("\n" if rng.random() < 0.4 else " ").join([*lines, ending])
