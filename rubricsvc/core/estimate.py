"""Estimates: a number with its interval."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

from pydantic import Field

MIN_CLUSTERS = 5  # fewer clusters (prompts, or completions of one prompt) than this give no interval


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval. Without a value or an interval ``null_reason`` says why."""

    value: Annotated[float | None, Field(description="The number; null where it cannot be estimated.")]
    low: Annotated[float | None, Field(description="Lower end of the 95 % interval.")] = None
    high: Annotated[float | None, Field(description="Upper end of the interval.")] = None
    null_reason: Annotated[str | None, Field(description="Why there is no number or no interval.")] = None


def mean_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None without any."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
