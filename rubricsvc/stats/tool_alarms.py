"""Alarms of a run in an environment: its policy stops calling its tools, calls them wrongly, or never reports.

Shares of single steps are of few episodes, so that means of `WINDOW` consecutive steps are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from rubricsvc.schemas.runs import Alarm

WINDOW = 5
"""Steps whose mean is compared; a run of fewer than twice as many has no trend."""
FEWER_CALLS = 0.5
"""Part of the largest share of episodes with a tool call that is left when the policy stops calling its tools."""
CHANGE = 0.2
"""The least change of a share that is a trend."""

Steps = Sequence[Mapping[str, Any]]


class _Mean(NamedTuple):
    """The mean of a share over the steps from ``first`` to ``step``."""

    first: int
    step: int
    value: float

    @property
    def steps(self) -> str:
        """The steps, for people."""
        return f"steps {self.first} to {self.step}"


def tool_alarms(steps: Steps) -> list[Alarm]:
    """Return the alarms of a run's steps; none without an environment."""
    return [*_fewer_calls(steps), *_more_malformed(steps), *_no_reports(steps)]


def _fewer_calls(steps: Steps) -> Iterator[Alarm]:
    means = _best_and_last(steps, "tools/used_fraction")
    if means is None:
        return
    best, last = means
    if last.value <= FEWER_CALLS * best.value and best.value - last.value >= CHANGE:
        yield Alarm(
            text=f"The policy stops calling its tools: a tool was called in {best.value:.0%} of the episodes of "
            f"{best.steps}, and in {last.value:.0%} of those of {last.steps}.",
            step=last.step,
            sign="no_call",
        )


def _more_malformed(steps: Steps) -> Iterator[Alarm]:
    means = _best_and_last(steps, "tools/valid_fraction")
    if means is None:
        return
    best, last = means
    if best.value - last.value >= CHANGE:
        yield Alarm(
            text=f"Calls get worse: {1 - best.value:.0%} were malformed or refused in {best.steps}, and "
            f"{1 - last.value:.0%} in {last.steps}.",
            step=last.step,
            sign="malformed",
        )


def _no_reports(steps: Steps) -> Iterator[Alarm]:
    measured = [step for step in steps if step.get("tools/reported_fraction") is not None]
    without = [step for step in measured if step["tools/reported_fraction"] == 0]
    if without:
        cut = sum(step.get("completions/clipped_ratio") == 1 for step in without)
        yield Alarm(
            text=f"In {len(without)} of {len(measured)} steps (the last is {without[-1]['step']}) no episode ended "
            f"with a report; in {cut} of them every episode was cut off. Raise sampling.max_new_tokens, "
            "environment.max_tokens or environment.max_turns, or begin with demonstrations.",
            step=without[-1]["step"],
            sign="no_report",
        )


def _best_and_last(steps: Steps, name: str) -> tuple[_Mean, _Mean] | None:
    """Return the largest and the last mean of a share over windows of steps; None with fewer than two windows."""
    values = [(step["step"], step[name]) for step in steps if step.get(name) is not None]
    means = [
        _Mean(values[end - WINDOW][0], values[end - 1][0], fmean(value for _, value in values[end - WINDOW : end]))
        for end in range(WINDOW, len(values) + 1)
    ]
    return (max(means, key=lambda one: one.value), means[-1]) if len(means) > WINDOW else None
