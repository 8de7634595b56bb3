"""What a judge reached, as Markdown: the tables of its tests, its audit, and what was asked beside what was reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench.judge_tests import View
from rubricsvc.core.audit import Audit, Figure, Rate, Repeatability
from rubricsvc.core.passport import TRAINED, UNTRAINED, Measure, Row, Table

ATTACKS = ("master_keys", "trivial", "constant", "injection")
"""Suites of the audit with a limit of their own; ``missed`` has another one."""
MAX_FALSE_POSITIVES, MAX_MISSED = 0.05, 0.3
HEADINGS: dict[Measure, str] = {
    "auroc": "AUROC",
    "macro_auroc": "mean AUROC of kinds",
    "accuracy": "accuracy",
    "pairwise_accuracy": "pairs in order",
    "spearman": "Spearman",
    "brier": "Brier",
    "ece": "ECE",
}

Tables = Sequence[tuple[View, Table]]


@dataclass(frozen=True)
class Reached:
    """A row of what was asked for: ``met`` is None where nothing was measured or asked."""

    row: str
    asked: str
    reached: str
    met: bool | None

    @property
    def line(self) -> str:
        """The row in Markdown."""
        met = {True: "yes", False: "no", None: "–"}[self.met]
        return f"| {self.row} | {self.asked} | {self.reached} | {met} |"


def number(figure: Figure | Rate) -> str:
    """Return a figure with its interval."""
    if figure.value is None:
        return "n/a"
    interval = "" if figure.low is None else f" [{figure.low:.2f}, {figure.high:.2f}]"
    return f"{figure.value:.2f}{interval}"


def markdown(table: Table) -> Iterator[str]:
    """Yield the lines of a table: all scorers on the whole set, and judges on its parts."""
    judges = (UNTRAINED, TRAINED)
    rows = sorted(table.rows, key=lambda row: judges.index(row.scorer) if row.scorer in judges else -1)
    known = {one for row in table.whole for one in HEADINGS if row[one].value is not None}
    if table.measure != "macro_auroc":
        known.discard("macro_auroc")  # of one or two kinds it says nothing more
    measures = [one for one in HEADINGS if one in known]
    yield f"**{table.name}** ({table.description})\n"
    yield f"| scorer | n | positive | {' | '.join(HEADINGS[one] for one in measures)} |"
    yield f"|---|--:|--:|{'---|' * len(measures)}"
    for row in rows:
        if not row.part:
            yield _line(row.scorer, row, measures)
    for row in sorted((row for row in rows if row.part and row.scorer in judges), key=lambda row: row.part):
        yield _line(f"… {row.part}, {row.scorer}", row, measures)
    yield ""


def _line(name: str, row: Row, measures: Sequence[Measure]) -> str:
    return f"| {name} | {row.n} | {row.positives} | {' | '.join(number(row[one]) for one in measures)} |"


def audit_lines(audit: Audit) -> Iterator[str]:
    """Yield the lines of an audit."""
    yield "| suite | measure | findings | rate | limit | before the attack | unscored |"
    yield "|---|---|--:|---|--:|---|--:|"
    for one in audit.suites:
        before = number(one.baseline) if one.baseline else ""
        unscored = sum(one.unscored.values())
        cells = [one.name, one.measure, one.rate.n, number(one.rate), f"{one.max_rate:.2f}", before, unscored]
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""


def repeatability_line(found: Repeatability) -> str:
    """Return the deviation of verdicts when the judge is asked again."""
    deviations = [f"{kind} {one.value:.4f}" for kind, one in found.criteria.items() if one.value is not None]
    unscored = sum(found.unscored.values())
    return (
        f"Repeatability: standard deviation of a verdict {', '.join(deviations) or 'n/a'}, "
        f"{found.repeats} times, {found.completions} completions, {unscored} without a value"
    )


def summary(scorer: str, tables: Tables, audit: Audit | None) -> Iterator[Reached]:
    """Yield the rows of what was asked for."""
    for view, table in tables:
        if view.target is not None:
            figure = _figure(scorer, table)
            met = None if figure.value is None else figure.value >= view.target
            yield Reached(view.name, f"{HEADINGS[view.measure]} ≥ {view.target:.2f}", number(figure), met)
    yield from _other_sets([(table.name, _figure(scorer, table)) for view, table in tables if view.other])
    yield from _audit_rows(audit)
    yield Reached("distillation", "agreement ≥ 0.9 of the teacher's own", "needs a training, not measured here", None)


def _figure(scorer: str, table: Table) -> Figure:
    row = next((row for row in table.whole if row.scorer == scorer), None)
    return row[table.measure] if row else Figure()


def _other_sets(figures: Sequence[tuple[str, Figure]]) -> Iterator[Reached]:
    known = [one for _, one in figures if one.value is not None]
    if known:
        above = sum(one.low is not None and one.low > 0.5 for one in known)
        mean = float(np.mean([one.value for one in known]))
        reached = f"lower bound over 0.5 on {above} of {len(known)} sets; mean AUROC {mean:.3f}"
        yield Reached("sets never trained on", "lower bound > 0.5 on more than half", reached, above > len(known) / 2)
    for name, figure in figures:
        yield Reached(f"… {name}", "", number(figure), None if figure.low is None else figure.low > 0.5)


def _audit_rows(audit: Audit | None) -> Iterator[Reached]:
    rates = {one.name: one.rate for one in audit.suites} if audit else {}
    for name in ATTACKS:
        if rate := rates.get(name):
            met = None if rate.value is None else rate.value <= MAX_FALSE_POSITIVES
            yield Reached(f"audit: {name}", f"≤ {MAX_FALSE_POSITIVES}", number(rate), met)
    if rate := rates.get("missed"):
        met = None if rate.value is None else rate.value <= MAX_MISSED
        yield Reached("audit: missed", f"≤ {MAX_MISSED}", number(rate), met)


def summary_lines(rows: Iterable[Reached]) -> Iterator[str]:
    """Yield the lines of the last table."""
    yield "| row | asked | reached | met |"
    yield "|---|---|---|---|"
    for row in rows:
        yield row.line
