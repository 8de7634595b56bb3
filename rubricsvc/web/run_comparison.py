"""The page of two training runs beside each other: scores, samples, curves and configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rubricsvc import __version__
from rubricsvc.core.run_comparison import RunComparison
from rubricsvc.core.run_evaluation import REWARD
from rubricsvc.core.run_report import RunReport, Sample
from rubricsvc.web.pages import render
from rubricsvc.web.run_charts import Point, band_note, drawn, metric_points, score_points
from rubricsvc.web.run_curves import CURVES

Chart = tuple[str, dict[str, Any]]
"""The run or runs in a chart, and the chart."""


def render_comparison(found: RunComparison, a: RunReport, b: RunReport) -> str:
    """Return the page as HTML. Texts are escaped, and the page loads nothing."""
    return render(
        "run_comparison.html.j2",
        a=found.a,
        b=found.b,
        notes=found.notes,
        config=found.config,
        scores=found.scores,
        reward=REWARD,
        score_curves=list(_score_curves(found, a, b)),
        samples=_side_by_side(found, a, b),
        curves=list(_curves(found, a, b)),
        version=__version__,
    )


def _curves(found: RunComparison, a: RunReport, b: RunReport) -> Iterator[tuple[str, list[Chart], str]]:
    for heading, name, unit in CURVES:
        sides = [metric_points(report.steps, [name]) for report in (a, b)]
        if any(sides):
            runs = [(run, report) for run, report, side in zip("AB", (a, b), sides, strict=True) if side]
            notes = {run: band_note(report.steps, [name]) for run, report in runs}
            same = len(set(notes.values())) == 1
            texts = set(notes.values()) if same else [f"{run}: {note}" for run, note in notes.items()]
            note = f"{unit}, by step. {' '.join(texts)}"
            yield heading, _charts(heading.lower(), sides, apart=name == REWARD and bool(found.reward_reason)), note


def _score_curves(found: RunComparison, a: RunReport, b: RunReport) -> Iterator[tuple[str, list[Chart]]]:
    names = dict.fromkeys(score for report in (a, b) for line in report.evaluations for score in line["scores"])
    refused = {row.score for row in found.scores if row.measure == "mean" and row.result == "not_comparable"}
    for score in names:
        sides = [
            score_points(
                {**line, "scores": {score: line["scores"][score]}}
                for line in report.evaluations
                if score in line["scores"]
            )
            for report in (a, b)
        ]
        if any(sides):
            yield f"Mean {score}", _charts(f"mean {score}", sides, apart=score in refused)


def _charts(title: str, sides: Sequence[Sequence[Point]], *, apart: bool) -> list[Chart]:
    """Return the curves of both runs in one chart, or, where they are not on one scale, in one chart each."""
    named = {name: [replace(one, series=name) for one in side] for name, side in zip("AB", sides, strict=True) if side}
    groups = [[name] for name in named] if apart else [list(named)]
    return [(" and ".join(names), drawn(title, [one for name in names for one in named[name]])) for names in groups]


def _side_by_side(found: RunComparison, a: RunReport, b: RunReport) -> dict[str, dict[str, Sample]]:
    """Return for each prompt of both runs the completions of their first, best and last policies."""
    columns: dict[str, tuple[RunReport, str]] = {}
    for name, report in (("A", a), ("B", b)):
        steps = {row.step_a if name == "A" else row.step_b for row in found.scores}
        if report.evaluations:
            steps |= {report.evaluations[0]["step"], report.evaluations[-1]["step"]}
        columns |= {f"{name}, step {step}": (report, f"step {step}") for step in sorted(steps)}
    return {
        prompt: {
            title: report.samples[prompt][name]
            for title, (report, name) in columns.items()
            if name in report.samples[prompt]
        }
        for prompt in a.samples
        if prompt in b.samples
    }
