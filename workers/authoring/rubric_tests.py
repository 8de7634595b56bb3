"""Runs the examples of a rubric: what a judge finds beside what each example must get."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import reward_or_null
from rubricsvc.core.rubric import Rubric, nearest_level
from rubricsvc.core.rubric_example import RubricExample
from rubricsvc.core.rubric_test import ExampleTest, VerdictTest
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from workers.authoring.gate import ASKABLE
from workers.engines.base import Engine
from workers.scoring.completions import score
from workers.scoring.questions import questions_of

OnDone = Callable[[], None]


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
    """Return the prompt that the example answers: its own, or that of the rubric.

    Raises:
        InvalidError: There is none.
    """
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
