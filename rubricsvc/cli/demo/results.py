"""The results of the demo as values: rewards and verdicts before and after training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from rubricsvc.core.rubric import Criterion
from rubricsvc.core.verdict import Verdict


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None if there are none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


@dataclass(frozen=True)
class QuestionResult:
    """The rewards of one question under one rubric, before and after training."""

    name: str
    text: str
    held_out: bool
    before: Sequence[float | None]
    after: Sequence[float | None]

    @property
    def change(self) -> float | None:
        """Difference of the mean rewards."""
        before, after = mean(self.before), mean(self.after)
        return None if before is None or after is None else after - before


@dataclass(frozen=True)
class MeanChange:
    """The mean change of the reward over ``questions``, and its standard error over them."""

    mean: float
    standard_error: float
    questions: int


def mean_change(results: Sequence[QuestionResult]) -> MeanChange | None:
    """Return the mean change; None if fewer than two questions have rewards before and after."""
    changes = [result.change for result in results if result.change is not None]
    if len(changes) < 2:
        return None
    return MeanChange(fmean(changes), stdev(changes) / len(changes) ** 0.5, len(changes))


@dataclass(frozen=True)
class CriterionResult:
    """The mean value of a criterion over the completions on which it was scored."""

    question: str
    criterion: Criterion
    before: float | None
    after: float | None


def by_key(results: Iterable[CriterionResult]) -> list[CriterionResult]:
    """Return the mean over all questions of each criterion key."""
    groups: dict[str, list[CriterionResult]] = {}
    for result in results:
        groups.setdefault(result.criterion.key, []).append(result)
    return [
        CriterionResult("", rows[0].criterion, mean(row.before for row in rows), mean(row.after for row in rows))
        for rows in groups.values()
    ]


@dataclass(frozen=True)
class ScoredCompletion:
    """One completion with each verdict and its reason; ``truncated`` at the token limit."""

    text: str
    truncated: bool
    reward: float | None
    vetoed_by: Criterion | None
    verdicts: Sequence[tuple[Criterion, Verdict, str]]


@dataclass(frozen=True)
class Example:
    """A question with a completion from before training and one from after."""

    question: str
    held_out: bool
    before: ScoredCompletion
    after: ScoredCompletion


@dataclass(frozen=True)
class RubricComparison:
    """The same completions under our rubric and under the generated one, with the criteria of the latter."""

    written: QuestionResult
    generated: QuestionResult
    criteria: Sequence[CriterionResult]
