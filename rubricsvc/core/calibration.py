"""Calibration: a judge's probabilities made into the shares of cases in which people agree.

A judge has a curve for each family of criteria. The family of a criterion is its first tag, or, without tags, the kind
of its scale: tags are how authors say that criteria are alike, and judges err on criteria of one kind in one way. How
curves are found is in `calibrating`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Literal

from pydantic import Field, model_validator

from rubricsvc.core.base import UnitInterval, Value
from rubricsvc.core.rubric import Criterion

Method = Literal["none", "temperature", "platt", "isotonic"]

FARTHEST = 1e-6
"""A probability is taken to be at least so far from 0 and 1, where its logit is."""


def logit(probability: float) -> float:
    p = min(max(probability, FARTHEST), 1.0 - FARTHEST)
    return math.log(p / (1.0 - p))


class Curve(Value):
    """Probability to calibrated probability, never falling.

    ``temperature`` and ``platt`` are sigmoid(slope · logit(p) + offset) (the former without offset: slope is 1 / T);
    ``isotonic`` goes straight from each of its ``knots`` (p, calibrated) to the next; ``none`` changes nothing: it was
    tried, and found best.
    """

    method: Method
    slope: float = Field(default=1.0, ge=0.0)
    offset: float = 0.0
    knots: tuple[tuple[UnitInterval, UnitInterval], ...] = ()

    @model_validator(mode="after")
    def _rising(self) -> Curve:
        if (self.method == "isotonic") != bool(self.knots):
            raise ValueError("an isotonic curve, and no other, has knots")
        for (x, y), (next_x, next_y) in zip(self.knots, self.knots[1:], strict=False):
            if next_x < x or next_y < y:
                raise ValueError(f"knots rise in both numbers, found {next_x, next_y} after {x, y}")
        return self

    def __call__(self, probability: float) -> float:
        if self.method == "none":
            return probability
        if self.method == "isotonic":
            return self._between(probability)
        score = self.slope * logit(probability) + self.offset
        return 1.0 / (1.0 + math.exp(-score)) if score >= 0 else 1.0 - 1.0 / (1.0 + math.exp(score))

    def _between(self, probability: float) -> float:
        after = bisect_right(self.knots, probability, key=lambda knot: knot[0])
        if after in (0, len(self.knots)):
            return self.knots[max(after - 1, 0)][1]
        (x, y), (next_x, next_y) = self.knots[after - 1 : after + 1]
        return y + (next_y - y) * (probability - x) / (next_x - x)


class Calibration(Value):
    """A curve for each family of criteria; a criterion of any other family keeps its probability."""

    families: dict[str, Curve] = Field(min_length=1)

    def value(self, criterion: Criterion, probability: float) -> float:
        """The calibrated probability of ``criterion``."""
        curve = self.families.get(family(criterion))
        return curve(probability) if curve else probability


def family(criterion: Criterion) -> str:
    """Which criteria share a curve: those with the same first tag, or without tags those of the same kind of scale."""
    return criterion.tags[0] if criterion.tags else criterion.scale.kind
