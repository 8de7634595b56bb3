"""What stored verdicts and labels say about a rubric: its criteria, and weights fitted to people."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rubricsvc.core.base import Value
from rubricsvc.core.estimate import Estimate

Action = Literal["retire", "reweigh", "sharpen", "check"]

MIN_VERDICTS = 30
"""Verdicts of a criterion from which there is advice on it."""


class CriterionStatistics(Value):
    """One criterion over the completions that a judge scored. Shares and correlations are null without the data."""

    key: str
    text: str
    weight: float
    kind: Literal["judged", "checked"]
    required: bool
    n: int = Field(description="Scored verdicts.")
    failed: float = Field(description="Share of the completions whose verdict failed.")
    abstained: float = Field(description="Share of the completions on which the judge abstained.")
    mean: Estimate = Field(description="Mean value, with the cluster-robust t interval over prompts.")
    met: Estimate = Field(description="Share of values of 0.5 or more, with Wilson's interval of the effective size.")
    saturated: Literal["met", "not met"] | None = Field(description="Whether 95 % of its values are met, or not met.")
    variance_within: float | None = Field(description="Variance among the completions of one prompt, pooled.")
    varying_groups: float | None = Field(description="Share of the groups in which the value varies.")
    variance_share: float | None = Field(description="Share of the reward's variance within groups; they sum to 1.")
    length_correlation: float | None = Field(description="Correlation with the logarithm of the length, within groups.")
    labels: int = Field(default=0, description="Labels beside a verdict.")
    agreement: dict[str, Estimate] = Field(default_factory=dict, description="Agreement with the labels, by metric.")
    edge: Estimate | None = Field(default=None, description="Mean difference, preferred less other completion.")


class RedundantPair(Value):
    """Two criteria whose values are nearly the same, or nearly opposite."""

    a: str
    b: str
    correlation: float
    n: int


class Advice(Value):
    """What to do about a criterion, and the figures that suggest it."""

    action: Action
    criterion: str
    evidence: str


class RewardSpread(Value):
    """The variance of the rewards, and what of it a policy can learn from: groups of completions that differ."""

    n: int
    mean: Estimate
    variance_within: float | None
    varying_groups: float | None


class RubricAnalysis(Value):
    """One rubric version as one judge applied it."""

    rubric_id: int
    rubric: str
    job_id: int | None
    judge: str
    completions: int
    prompts: int
    groups: int = Field(description="Prompts with two or more completions.")
    reward: RewardSpread
    criteria: tuple[CriterionStatistics, ...]
    redundant: tuple[RedundantPair, ...]
    advice: tuple[Advice, ...]


FitTo = Literal["labels", "preferences"]
Signs = Literal["keep", "free"]


class FittedWeight(Value):
    """One criterion's weight before and after; the interval is of a bootstrap over prompts."""

    key: str
    old: float
    new: float
    low: float | None
    high: float | None
    kept: bool = Field(description="Whether its value never varies, so that the old weight stays.")


class HeldOut(Value):
    """How well one weighting predicts people on prompts that it was not fitted to.

    ``equal`` has the signs of the weights only; ``mean`` is the mean score of the other prompts, or chance. Scores are
    Σ weight · value, before veto and clip; for the root mean squared error and the log loss they are scaled on the
    other prompts.
    """

    weights: Literal["fitted", "current", "equal", "mean"]
    metrics: dict[str, Estimate]


class WeightFit(Value):
    """Fitted weights, scaled to the same sum of absolute values as the current ones."""

    rubric: str
    job_id: int | None
    judge: str
    to: FitTo
    signs: Signs
    n: int = Field(description="Scores, or pairs.")
    left_out: int = Field(description="Scores or pairs with a missing value.")
    people: int
    prompts: int = Field(description="Prompts; completions where all have one prompt. Folds and draws take whole ones.")
    folds: int
    penalty: float = Field(description="Of the squared weights, chosen within the training folds, and then on all.")
    weights: tuple[FittedWeight, ...]
    held_out: tuple[HeldOut, ...]
    gain: dict[str, Estimate] = Field(description="Fitted less current, on the same held-out rows.")
    saved: str | None = Field(default=None, description="The new version, if it was stored.")
