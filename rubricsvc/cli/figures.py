"""Numbers and intervals as cells of a table."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import Any


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None if there are none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def number(value: float | None, *, missing: str = "n/a", digits: int = 3) -> str:
    """Return the number with fixed digits, or ``missing``."""
    return missing if value is None else f"{value:.{digits}f}"


def cells(estimate: Any, *, digits: int = 3) -> tuple[str, str]:
    """Return the value and the interval ``[low, high]`` of an estimate of any kind; empty cells where there is none."""
    if estimate is None:
        return "", ""
    ends = [number(end, digits=digits - 1) for end in (estimate.low, estimate.high) if end is not None]
    return number(estimate.value, digits=digits), f"[{', '.join(ends)}]" if ends else ""
