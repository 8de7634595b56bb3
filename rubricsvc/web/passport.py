"""The page of a trained judge's passport: figures beside baselines, data, and what it must not be used for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from pydantic import JsonValue

from rubricsvc import __version__
from rubricsvc.core.audit import SuiteResult
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import (
    CHANCE,
    LESS_IS_BETTER,
    TRAINED,
    UNTRAINED,
    Figure,
    Measure,
    Passport,
    Row,
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
"""Parts of a test set that are listed."""


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
    """The figures of every scorer on one test set, on one axis, and those of its parts."""

    table: Table
    axis: Axis
    parts: Sequence[Part]

    @property
    def target_reached(self) -> bool | None:
        """Whether the judge reached the target; None without a target or a figure."""
        trained = self.table.trained
        value = trained[self.table.measure].value if trained else None
        if value is None or self.table.target is None:
            return None
        return value <= self.table.target if self.table.measure in LESS_IS_BETTER else value >= self.table.target


@dataclass(frozen=True)
class Part:
    """A part of a test set: the judge's row, its base's, and the best baseline's."""

    name: str
    trained: Row
    untrained: Row | None
    baseline: Row | None


@dataclass(frozen=True)
class Overview:
    """The test sets with one measure, on one axis."""

    measure: Measure
    axis: Axis
    forests: Sequence[Forest]

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
    forests = [forest(table) for table in passport.tables]
    return render(
        "passport.html.j2",
        judge=judge,
        passport=passport,
        overviews=[overview(measure, list(ones)) for measure, ones in _by_measure(forests)],
        forests=forests,
        suites=suites(passport),
        unit=Axis(0.0, 1.0),
        duration=duration,
        option=option_text,
        ingredient_axis=Axis.of(one.value for row in passport.ingredients for one in (row.complete, row.without)),
        measures=MEASURES,
        trained=TRAINED,
        untrained=UNTRAINED,
        chance=CHANCE,
        max_cards=MAX_CARDS,
        max_parts=MAX_PARTS,
        open_tables=len(forests) <= OPEN_TABLES,
        version=__version__,
    )


def forest(table: Table) -> Forest:
    """Return the figures of a test set on their axis."""
    names = dict.fromkeys(row.part for row in table.rows if row.part)
    parts = []
    for name in names:
        rows = tuple(row.model_copy(update={"part": ""}) for row in table.rows if row.part == name)
        part = table.model_copy(update={"rows": rows})
        if part.trained is not None:
            parts.append(Part(name, part.trained, _untrained(part), part.best_baseline))
    return Forest(table, Axis.of(_numbers(table)), parts)


def overview(measure: Measure, forests: Sequence[Forest]) -> Overview:
    """Return the test sets with one measure on one axis."""
    return Overview(measure, Axis.of(number for one in forests for number in _numbers(one.table)), forests)


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
        return ", ".join(f"{name} {option_text(one)}" for name, one in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def _by_measure(forests: Sequence[Forest]) -> Iterable[tuple[Measure, Iterable[Forest]]]:
    order = {measure: place for place, measure in enumerate(dict.fromkeys(one.table.measure for one in forests))}
    return groupby(sorted(forests, key=lambda one: order[one.table.measure]), key=lambda one: one.table.measure)


def _untrained(table: Table) -> Row | None:
    return next((row for row in table.whole if row.scorer == UNTRAINED), None)


def _numbers(table: Table) -> list[float | None]:
    figures: list[Figure] = [row[table.measure] for row in table.whole]
    ends = [number for one in figures for number in (one.value, one.low, one.high)]
    return [*ends, table.target, CHANCE.get(table.measure)]
