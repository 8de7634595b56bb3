"""Ranks, and how far two rankings of the same things agree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations


def ranks(values: Sequence[float | None]) -> list[int | None]:
    """Return the rank of each value, 1 for the highest; equal values share the smallest rank, None has none."""
    ordered = sorted((value for value in values if value is not None), reverse=True)
    first: dict[float, int] = {}
    for place, value in enumerate(ordered, start=1):
        first.setdefault(value, place)
    return [None if value is None else first[value] for value in values]


def kendall_tau(groups: Iterable[Sequence[tuple[float, float]]]) -> float | None:
    """Return Kendall's tau-b of pairs of values, over the pairs of things within each group.

    1 is the same order, -1 the reverse. None where one of the two rankings has ties only.
    """
    agreeing = in_first = in_second = 0
    for group in groups:
        for (a, x), (b, y) in combinations(group, 2):
            first, second = (a > b) - (a < b), (x > y) - (x < y)
            agreeing += first * second
            in_first += first != 0
            in_second += second != 0
    return agreeing / math.sqrt(in_first * in_second) if in_first and in_second else None
