"""Student's t distribution with whole degrees of freedom, without SciPy."""

from __future__ import annotations

from functools import cache
from math import atan, cos, pi, sin, sqrt

_MOST_FREEDOM = 10_000
_HALVINGS = 50


def t_tail(t: float, freedom: int) -> float:
    """Return P(T > t) (Abramowitz and Stegun, 26.7.3 and 26.7.4).

    Its error is about 1e-15: far smaller tails are not distinguished from 0.
    """
    angle = atan(t / sqrt(freedom))
    term, total = (cos(angle) if freedom % 2 else 1.0), 0.0
    for k in range(freedom % 2 + 2, freedom + 1, 2):
        total += term
        term *= cos(angle) ** 2 * (k - 1) / k
    within = (angle + sin(angle) * total) * 2 / pi if freedom % 2 else sin(angle) * total
    return max(0.0, (1.0 - within) / 2)


@cache
def t_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile; above 10,000 degrees of freedom that of 10,000, which is 0.01 % too large."""
    low, high = 1.9, 13.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, min(freedom, _MOST_FREEDOM)) > 0.025 else (low, middle)
    return (low + high) / 2
