"""Least squares of one and of two columns, without NumPy: the trainer fits after every evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import fsum
from statistics import fmean


def slope(x: tuple[float, ...], y: Sequence[float]) -> float:
    """Return the slope of the line through points of which not all have the same x."""
    return _product(_slope_factors(x), y)


@lru_cache(maxsize=64)
def _slope_factors(x: tuple[float, ...]) -> list[float]:
    mean = fmean(x)
    total = fsum((one - mean) ** 2 for one in x)
    return [(one - mean) / total for one in x]


def solve(first: Sequence[float], second: Sequence[float], y: Sequence[float]) -> tuple[float, float] | None:
    """Return the coefficients of two columns, without a constant; None where they are proportional."""
    aa, ab, bb = (_product(*pair) for pair in ((first, first), (first, second), (second, second)))
    ay, by = _product(first, y), _product(second, y)
    determinant = aa * bb - ab * ab
    if determinant <= 1e-12 * aa * bb:
        return None
    return (ay * bb - by * ab) / determinant, (by * aa - ay * ab) / determinant


def _product(first: Sequence[float], second: Sequence[float]) -> float:
    return fsum(a * b for a, b in zip(first, second, strict=True))
