"""Numbers and intervals as cells of a table."""

from __future__ import annotations


def number(value: float | None, *, missing: str = "", digits: int = 3) -> str:
    """Return the number with fixed digits, or ``missing``."""
    return missing if value is None else f"{value:.{digits}f}"


def interval(low: float | None, high: float | None, *, missing: str = "", digits: int = 2) -> str:
    """Return ``[low, high]``, or ``missing`` without an interval."""
    return missing if low is None or high is None else f"[{low:.{digits}f}, {high:.{digits}f}]"
