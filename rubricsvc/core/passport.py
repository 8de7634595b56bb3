"""The passport of a trained judge: what it was made from, what it reaches, and what it must not be used for."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rubricsvc.core.base import Value

Measure = Literal["auroc", "macro_auroc", "accuracy", "brier", "ece", "pairwise_accuracy", "spearman"]


class Figure(Value):
    """A measured number with its 95 % interval. Without a value there was too little to measure."""

    value: float | None = Field(default=None, description="Measured number; null if there was too little.")
    low: float | None = Field(default=None, description="Lower end of the 95 % interval.")
    high: float | None = Field(default=None, description="Upper end of the 95 % interval.")


class Row(Value):
    """The figures of one scorer (a baseline or a judge) on one part of a test set.

    ``positives`` counts labels of 0.5 or more. ``part`` is empty for the whole set.
    """

    scorer: str = Field(description="Baseline or judge that gave the scores.")
    part: str = Field(default="", description="Part of the set, such as a source or a variant; empty for all of it.")
    n: int = Field(ge=0, description="Labels.")
    positives: int = Field(ge=0, description="Labels of 0.5 or more.")
    figures: dict[Measure, Figure] = Field(description="Figures by measure.")

    def __getitem__(self, measure: Measure) -> Figure:
        """Return the figure of a measure, without a value if it was not measured."""
        return self.figures.get(measure) or Figure()
