"""The page of a sweep: its table, and the curves of its variants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from rubricsvc import __version__
from rubricsvc.core.run_evaluation import REWARD
from rubricsvc.core.run_report import RunReport
from rubricsvc.core.sweep import SweepTable
from rubricsvc.web.pages import render
from rubricsvc.web.run_charts import Point, drawn

Variants = Mapping[str, Mapping[int, RunReport]]
"""The runs of a sweep, by variant and seed."""


def render_sweep(table: SweepTable, variants: Variants) -> str:
    """Return the page as HTML. Texts are escaped, and the page loads nothing."""
    return render(
        "sweep.html.j2", table=table, curves=list(_curves(table, variants)), reward=REWARD, version=__version__
    )


def _curves(table: SweepTable, variants: Variants) -> Iterator[tuple[str, dict[str, Any]]]:
    for score in dict.fromkeys(row.score for row in table.rows):
        points = [
            point
            for variant, runs in variants.items()
            for point in _points(variant, [run.evaluations for run in runs.values()], score)
        ]
        if points:
            yield f"Mean {score} on held-out prompts", drawn(f"mean {score}", points)


def _points(variant: str, runs: Sequence[Sequence[Mapping[str, Any]]], score: str) -> Iterator[Point]:
    """Yield the mean over seeds after each evaluated step, with the lowest and the highest seed as its band."""
    values: dict[int, list[float]] = defaultdict(list)
    for lines in runs:
        for line in lines:
            mean = line["scores"].get(score, {}).get("mean", {}).get("value")
            if mean is not None:
                values[line["step"]].append(mean)
    for step, found in sorted(values.items()):
        band = (min(found), max(found)) if len(found) > 1 else (None, None)
        yield Point(variant, step, fmean(found), *band)
