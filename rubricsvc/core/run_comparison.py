"""Two training runs compared: configuration, training rewards, and scores on the held-out prompts that they share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from rubricsvc.core.base import Value
from rubricsvc.core.estimate import Estimate

Result = Literal["higher", "lower", "not_distinguishable", "no_interval", "not_comparable"]
Measure = Literal["mean", "greedy"]
Evaluated = Literal["last", "best"]


class ComparedRun(Value):
    """One of the two runs."""

    name: str = Field(description="Its id, or its folder.")
    status: str
    policy: str | None
    judge: str | None
    steps: int
    steps_total: int | None
    reward_first: float | None = Field(description="Mean training reward of the first tenth of the steps.")
    reward_last: float | None = Field(description="Mean training reward of the last tenth of the steps.")
    evaluations: int
    gold: str | None = Field(description="Score that its best policy is chosen by.")


class ConfigChange(Value):
    """A field of the configuration that differs; None where a run does not have it."""

    path: str
    a: Any
    b: Any


class HeldOutPrompts(Value):
    """What the evaluations of both runs have in common. ``shared`` are compared: same prompt, same rubric version."""

    same_setup: bool = Field(description="Whether prompts, rubrics, judges, sampling and seed are all the same.")
    shared: int
    other_rubric: int = Field(default=0, description="Prompts of both with another rubric version: left out.")
    only_a: int = 0
    only_b: int = 0


class ScoreComparison(Value):
    """B less A by one score, of one evaluation of each run.

    ``result`` says how B is; there is none but where the 95 % interval over prompts lies on one side of 0.
    """

    evaluation: Evaluated
    score: str
    measure: Measure = Field(description="Of the sampled completions of a prompt, or of its greedy one.")
    step_a: int
    step_b: int
    gold: bool = Field(default=False, description="Whether it is the gold score of both runs.")
    prompts: int = Field(default=0, description="Prompts with a value on both sides.")
    a: float | None = Field(default=None, description="Mean of A over these prompts.")
    b: float | None = None
    difference: Estimate | None = Field(default=None, description="Mean of B - A, paired by prompt.")
    result: Result
    reason: str | None = Field(default=None, description="Why the score is not compared.")


class RunComparison(Value):
    """Run B compared with run A: differences are B less A."""

    a: ComparedRun
    b: ComparedRun
    config: tuple[ConfigChange, ...] = Field(description="Fields that differ; names, places and times are left out.")
    reward_reason: str | None = Field(description="Why their training rewards are not on one scale.")
    held_out: HeldOutPrompts | None = Field(description="None where a run has no evaluation, or it is not known.")
    scores: tuple[ScoreComparison, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know before the numbers are read."""
        return tuple(self._notes())

    def _notes(self) -> Iterator[str]:
        if self.reward_reason:
            yield f"the training rewards are not on one scale: {self.reward_reason}"
        for name, run in (("A", self.a), ("B", self.b)):
            if not run.evaluations:
                yield f"{name} has no evaluation on held-out prompts; its reward alone does not show a better policy"
        if self.held_out is not None and not self.held_out.same_setup:
            counts = {
                "in A only": self.held_out.only_a,
                "in B only": self.held_out.only_b,
                "with another rubric version": self.held_out.other_rubric,
            }
            left_out = ", ".join(f"{count} {where}" for where, count in counts.items() if count)
            yield f"held-out prompts that are compared: {self.held_out.shared}; left out: {left_out or 'none'}"
        if self.held_out is not None and len({one.gold for one in (self.a, self.b)}) > 1:
            yield f"the best policy of A is chosen by {self.a.gold}, that of B by {self.b.gold}"
        last = {(row.step_a, row.step_b) for row in self.scores if row.evaluation == "last"}
        for step_a, step_b in last:
            if step_a != step_b:
                yield f"the last evaluation of A is after step {step_a}, that of B after step {step_b}"
