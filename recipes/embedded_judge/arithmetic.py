"""Word problems with worked solutions: whether the result is right is known by construction.

The right solution, or its result, is the reference of the prompt. ``arithmetic.yaml`` has the problems; numbers and
names are drawn, and the solutions of one problem are on one side of a split. A wrong solution has a slip in one of its
steps, and goes on with the wrong number, or states another result than it found: right and wrong ones have the same
words.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

from recipes.embedded_judge import load_yaml
from recipes.embedded_judge.damaged import Wordings
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion
from trainer.judge_training.data import Example, Target

SOURCE = "arithmetic"

RIGHT = Wordings(
    "right_result",
    met=(
        "Gives the right result",
        "Arrives at the correct number",
        "Its final answer is correct",
        "Solves the problem correctly",
        "Reaches the same result as the reference answer",
        "Its result agrees with the reference",
        "The result is the one of the reference answer",
        "Comes to the number that the reference gives",
    ),
    unmet=(
        "Gives a wrong result",
        "Its final answer is incorrect",
        "Reaches another result than the reference answer",
        "Its result differs from that of the reference",
        "Does not arrive at the correct number",
    ),
)

_STATED = ("Gives {} as the result", "Its result is {}", "The final answer is {}", "Concludes that the answer is {}")
"""Criteria on the result alone, which need no reference."""

_ENDINGS = (
    "The answer is {}.",
    "So the result is {}.",
    "Answer: {}",
    "That makes {}.",
    "{} is the answer.",
    "**{}**",
    "Result: {}",
)

_NAMES = (
    "Ana",
    "Ben",
    "Carla",
    "Deniz",
    "Emil",
    "Farah",
    "Goran",
    "Hana",
    "Ivo",
    "Jun",
    "Kofi",
    "Lena",
    "Mila",
    "Nils",
    "Omar",
    "Pia",
    "Quinn",
    "Rosa",
    "Sami",
    "Tara",
    "Uma",
    "Vera",
    "Wen",
    "Yara",
)

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
            first, second = rng.sample(_NAMES, 2)
            given = {name: rng.randint(*ends) for name, ends in problem["numbers"].items()} | {"N": first, "M": second}
            right = _solve(steps, given)
            order = rng.sample((True, False), 2)
        solution = right if order[number % 2] else _wrong(steps, given, right, rng)
        shown = _written(right, rng) if rng.random() < 0.6 else str(right.result)
        prompt = Prompt.of(problem["question"].format(**given), reference=shown)
        yield replace(_example(prompt, solution, right.result, negated, rng), group=problem["question"])


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
    ending = rng.choice(_ENDINGS).format(solution.result)
    form = rng.random()
    if form < 0.15:
        return ending
    lines = solution.equations if form < 0.4 else solution.sentences
    return ("\n" if rng.random() < 0.4 else " ").join([*lines, ending])


def _example(prompt: Prompt, solution: _Solution, right: int, share: float, rng: Random) -> Example:
    correct, negated = solution.result == right, rng.random() < share
    targets = [(RIGHT.sample(rng, negated=negated), correct != negated, RIGHT.family)]
    asked = rng.choice((solution.result, right, solution.result + rng.choice((-10, -1, 1, 10))))
    targets.append((rng.choice(_STATED).format(asked), asked == solution.result, "stated_result"))
    rng.shuffle(targets)
    made = (
        Target(Criterion(key=f"c{n}", text=text), float(met), family=family, variant="right" if correct else "wrong")
        for n, (text, met, family) in enumerate(targets, 1)
    )
    return Example(prompt, Completion(text=_written(solution, rng)), tuple(made), SOURCE)
