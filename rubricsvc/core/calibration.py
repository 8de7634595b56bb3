"""Calibration curves, from a judge's probabilities to the shares of cases in which people agree.

A judge has one curve for each family of criteria: those with the same first tag or, without tags, the same kind of
scale. ``rubricsvc.stats.calibration_fit`` fits the curves.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Literal

from pydantic import Field, model_validator

from rubricsvc.core.base import UnitInterval, Value
from rubricsvc.core.rubric import Criterion

Method = Literal["none", "temperature", "platt", "isotonic"]

MIN_DISTANCE = 1e-6
"""Least distance of a probability from 0 and 1 when its logit is taken."""


class Curve(Value):
    """A non-decreasing map from probability to calibrated probability.

    ``temperature`` (slope 1 / T, no offset) and ``platt`` are sigmoid(slope · logit(p) + offset). ``isotonic`` is
    linear between its ``knots`` (p, calibrated). ``none`` is the identity, where no other method was better.
    """

    method: Method = Field(description="Kind of curve.")
    slope: float = Field(1.0, ge=0.0, description="Factor of the logit (temperature, platt).")
    offset: float = Field(0.0, description="Offset of the logit (platt).")
    knots: tuple[tuple[UnitInterval, UnitInterval], ...] = Field(
        (), description="Points (probability, calibrated) of an isotonic curve."
    )

    @model_validator(mode="after")
    def _rising(self) -> Curve:
        if (self.method == "isotonic") != bool(self.knots):
            raise ValueError(f"knots are required for isotonic, and only there; the method is {self.method}")
        for numbers in zip(*self.knots, strict=True):
            if list(numbers) != sorted(numbers):
                raise ValueError(f"knots must not fall in either number, found {numbers}")
        return self

    def __call__(self, probability: float) -> float:
        """Return the calibrated probability."""
        if self.method == "none":
            return probability
        if self.method == "isotonic":
            return self._interpolate(probability)
        p = min(max(probability, MIN_DISTANCE), 1.0 - MIN_DISTANCE)
        score = self.slope * math.log(p / (1.0 - p)) + self.offset
        return 1.0 / (1.0 + math.exp(-score)) if score >= 0 else 1.0 - 1.0 / (1.0 + math.exp(score))

    def _interpolate(self, probability: float) -> float:
        after = bisect_right(self.knots, probability, key=lambda knot: knot[0])
        if after in (0, len(self.knots)):
            return self.knots[max(after - 1, 0)][1]
        (x, y), (next_x, next_y) = self.knots[after - 1 : after + 1]
        return y + (next_y - y) * (probability - x) / (next_x - x)


class Calibration(Value):
    """Curves by family of criteria; criteria of other families keep their probability."""

    families: dict[str, Curve] = Field(
        min_length=1, description="Curves by first tag, or by kind of scale where criteria have no tags."
    )

    def value(self, criterion: Criterion, probability: float) -> float:
        """Return the calibrated probability of ``criterion``."""
        curve = self.families.get(family(criterion))
        return curve(probability) if curve else probability


def family(criterion: Criterion) -> str:
    """Return the name of the criterion's family: its first tag or, without tags, the kind of its scale."""
    return criterion.tags[0] if criterion.tags else criterion.scale.kind
