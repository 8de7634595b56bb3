"""The runs of a sweep compared: each variant of a configuration with the first, over prompts and seeds."""

from __future__ import annotations

from pydantic import Field

from rubricsvc.core.base import Value
from rubricsvc.core.estimate import Estimate
from rubricsvc.core.run_comparison import Result


class SweepRow(Value):
    """A variant by one score, in the last evaluation of its runs.

    ``difference`` is that to the first variant, paired by prompt and seed; None for the first.
    """

    variant: str
    score: str
    gold: bool = Field(description="Whether it is the gold score.")
    seeds: int = Field(description="Runs that are compared.")
    prompts: int = Field(description="Different held-out prompts.")
    mean: Estimate
    difference: Estimate | None = None
    result: Result | None = None
    reason: str = Field(default="", description="Why the variant is not compared.")


class SweepFailure(Value):
    """A run of a sweep that failed. It is in no row of the table."""

    variant: str
    seed: int
    folder: str
    error: str
    hint: str = ""


class SweepTable(Value):
    """The variants, in the order of the file.

    ``best`` is higher than every other by the gold score; else None.
    """

    rows: tuple[SweepRow, ...]
    best: str | None = None
    failures: tuple[SweepFailure, ...] = ()
