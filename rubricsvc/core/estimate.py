"""Estimates: a number with its interval."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval. Without a value or an interval ``null_reason`` says why."""

    value: float | None
    low: float | None = None
    high: float | None = None
    null_reason: str | None = None
