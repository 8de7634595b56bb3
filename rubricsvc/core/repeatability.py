"""The repeatability of a judge: how far its verdicts and rewards vary when the same questions are asked again."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from rubricsvc.core.base import Value

DEFAULT_REPEATS = 5


class Deviation(Value):
    """A pooled standard deviation within questions, with a 95 % bootstrap interval.

    ``n`` is the number of questions that were scored at least twice. ``value`` is None without such a question; the
    interval is None if they are of fewer than five completions.
    """

    n: int = Field(ge=0, description="Questions that were scored at least twice.")
    value: float | None = Field(
        default=None, ge=0.0, description="Pooled standard deviation; null without such a question."
    )
    low: float | None = Field(default=None, ge=0.0, description="Lower end of the 95 % interval.")
    high: float | None = Field(default=None, ge=0.0, description="Upper end of the 95 % interval.")


class Repeatability(Value):
    """The result of asking a judge the same questions ``repeats`` times, in other batches and orders.

    ``criteria`` holds the deviation of verdict values in [0, 1] by kind of scale (binary, ordinal, numeric), ``reward``
    that of rewards, in the unit of the rubrics' formulas. ``fingerprint`` names how the judge was asked.
    ``unscored`` counts verdicts without a value, by outcome or reason. ``vetoed`` counts completions whose rewards were
    vetoed in every repeat: they say nothing about the deviation of rewards, and are not in it.
    """

    fingerprint: str = Field(description="Digest of how the judge was asked.")
    source: str = Field(description="What was judged.")
    measured_at: datetime = Field(description="Time of the measurement.")
    repeats: int = Field(ge=2, description="Times that each question was asked.")
    completions: int = Field(ge=1, description="Completions that were judged.")
    criteria: dict[str, Deviation] = Field(description="Deviation of verdict values, by kind of scale.")
    reward: Deviation = Field(description="Deviation of rewards.")
    unscored: dict[str, int] = Field(
        default_factory=dict, description="Verdicts without a value, by outcome or reason."
    )
    vetoed: int = Field(
        default=0,
        ge=0,
        description="Completions that were vetoed in every repeat; they are not in the deviation of rewards.",
    )
