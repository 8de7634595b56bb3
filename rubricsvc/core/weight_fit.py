"""Weights of a rubric fitted to people's overall scores or preferences."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rubricsvc.core.base import Value
from rubricsvc.core.estimate import Estimate

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
