"""The page of a trained judge's passport: figures beside baselines, data, and what it must not be used for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from rubricsvc.core.audit import SuiteResult
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import (
    CHANCE,
    TRAINED,
    UNTRAINED,
    Figure,
    Measure,
    Passport,
    Table,
)
from rubricsvc.web.pages import render

MEASURES: dict[Measure, str] = {
    "auroc": "AUROC",
    "macro_auroc": "AUROC, mean over criteria",
    "accuracy": "accuracy",
    "brier": "Brier score",
    "ece": "calibration error",
    "pairwise_accuracy": "pairwise accuracy",
    "spearman": "rank correlation (Spearman)",
}
MAX_CARDS = 4
"""Test sets whose figures are at the top of the page."""
OPEN_TABLES = 3
"""Up to so many test sets, the figures of every baseline are shown without a click."""
MAX_PARTS = 60
"""Parts of a test set that are listed, and lines of an overview."""


@dataclass(frozen=True)
class Axis:
    """The range of a plot. Places on it are in percent of its width."""

    low: float
    high: float

    @classmethod
    def of(cls, numbers: Iterable[float | None]) -> Axis:
        """Return an axis in whole tenths around the numbers."""
        known = [number for number in numbers if number is not None] or [0.0, 1.0]
        low, high = math.floor(min(known) * 10 + 1e-9) / 10, math.ceil(max(known) * 10 - 1e-9) / 10
        return cls(low, high if high > low else low + 0.1)

    def at(self, number: float) -> float:
        """Return the place of a number."""
        return round(100 * min(max((number - self.low) / (self.high - self.low), 0.0), 1.0), 2)

    @property
    def ticks(self) -> list[float]:
        """The ends and the middle."""
        return [self.low, (self.low + self.high) / 2, self.high]


@dataclass(frozen=True)
class Forest:
    """The figures of every scorer on one test set or one part of it, on one axis."""

    table: Table
    axis: Axis

    @classmethod
    def of(cls, table: Table) -> Forest:
        """Return the figures of a test set on their axis."""
        return cls(table, Axis.of(_numbers(table)))


@dataclass(frozen=True)
class Overview:
    """The judge beside its base and the best baseline on several test sets, or on the parts of one, on one axis."""

    measure: Measure
    forests: Sequence[Forest]
    name: str = ""
    description: str = ""

    @property
    def axis(self) -> Axis:
        """The axis of all."""
        return Axis.of(number for one in self.forests for number in _numbers(one.table))

    @property
    def chance(self) -> float | None:
        """What scores by chance reach."""
        return CHANCE.get(self.measure)


@dataclass(frozen=True)
class SuiteView:
    """A suite of the audit, after training and before."""

    trained: SuiteResult
    untrained: SuiteResult | None


def render_passport(judge: Judge, passport: Passport) -> str:
    """Return the page of a passport as HTML. Texts are escaped, and the page loads nothing."""
    forests = [Forest.of(table) for table in passport.tables if table.whole]
    return render(
        "passport.html.j2",
        judge=judge,
        passport=passport,
        overviews=overviews(passport.tables),
        forests=forests,
        suites=suites(passport),
        unit=Axis(0.0, 1.0),
        duration=duration,
        option=option_text,
        ablation_axis=Axis.of(one.value for row in passport.ablations for one in (row.complete, row.without)),
        measures=MEASURES,
        trained=TRAINED,
        untrained=UNTRAINED,
        chance=CHANCE,
        max_cards=MAX_CARDS,
        max_parts=MAX_PARTS,
        open_tables=len(forests) <= OPEN_TABLES,
    )


def overviews(tables: Sequence[Table]) -> list[Overview]:
    """Return an overview of the test sets for each measure, then one of each set that has figures of its parts only."""
    by_measure: dict[Measure, list[Forest]] = {}
    for table in tables:
        if table.whole:
            by_measure.setdefault(table.measure, []).append(Forest.of(table))
    found = [Overview(measure, forests) for measure, forests in by_measure.items()]
    for table in tables:
        if not table.whole and table.rows:
            parts = [Forest.of(part) for part in table.parts]
            found.append(Overview(table.measure, parts, table.name, table.description))
    return found


def suites(passport: Passport) -> list[SuiteView]:
    """Return the suites of the audit beside the same ones before training."""
    if passport.audit is None:
        return []
    before = {suite.name: suite for suite in passport.audit_untrained.suites} if passport.audit_untrained else {}
    return [SuiteView(suite, before.get(suite.name)) for suite in passport.audit.suites]


def duration(seconds: float) -> str:
    """Return a time in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def option_text(value: JsonValue) -> str:
    """Return an option of the training as text."""
    if isinstance(value, list):
        return ", ".join(map(option_text, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {_nested_text(one)}" for name, one in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _nested_text(value: JsonValue) -> str:
    return f"({option_text(value)})" if isinstance(value, dict | list) else option_text(value)


def _numbers(table: Table) -> list[float | None]:
    figures: list[Figure] = [row[table.measure] for row in table.whole]
    ends = [number for one in figures for number in (one.value, one.low, one.high)]
    return [*ends, CHANCE.get(table.measure)]
