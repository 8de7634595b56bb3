"""The demo's report: one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from rubricsvc.cli.demo.charts import question_chart, render_svg, reward_chart
from rubricsvc.cli.demo.folder import DemoSize
from rubricsvc.cli.demo.results import (
    CriterionResult,
    Example,
    QuestionResult,
    RubricComparison,
    by_key,
    mean,
    mean_change,
)
from rubricsvc.cli.html_page import render
from rubricsvc.core.verdict import Verdict


@dataclass(frozen=True)
class Report:
    """The content of the report; ``steps`` are the trainer's metrics."""

    summary: Mapping[str, Any]
    size: DemoSize
    questions: Sequence[QuestionResult]
    steps: Sequence[Mapping[str, Any]]
    criteria: Sequence[CriterionResult]
    examples: Sequence[Example]
    comparisons: Sequence[RubricComparison] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)


def write(path: Path, report: Report) -> None:
    """Render ``report`` to ``path``. Text of models is escaped; the page loads nothing."""
    from markupsafe import Markup

    charts = {"questions": render_svg(question_chart(report.questions))}
    if report.steps:
        charts["curve"] = render_svg(reward_chart(report.steps))
    page = render(
        Path(__file__).with_name("report.html.j2"),
        {"number": number, "signed": signed, "value": verdict_value, "mean": mean},
        report=report,
        summary=report.summary,
        size=report.size,
        criteria={name: list(rows) for name, rows in groupby(report.criteria, lambda row: row.question)},
        keys=by_key(report.criteria),
        training=change_sentence([q for q in report.questions if not q.held_out]),
        held_out=change_sentence([q for q in report.questions if q.held_out]),
        charts={name: {width: Markup(svg) for width, svg in both.items()} for name, both in charts.items()},  # noqa: S704 - vega made it, and escapes the questions in it
    )
    path.write_text(page, encoding="utf-8")


def number(value: float | None) -> str:
    """Format a reward."""
    return "–" if value is None else f"{value:.2f}"


def signed(value: float | None) -> str:
    """Format a change of the reward."""
    return "–" if value is None else f"{value:+.2f}"


def verdict_value(verdict: Verdict) -> str:
    """Format a verdict's value, or its outcome if it has none."""
    if verdict.value is not None:
        return number(verdict.value)
    return f"failed: {verdict.reason}" if verdict.outcome == "failed" else verdict.outcome


def change_sentence(questions: Sequence[QuestionResult]) -> str:
    """Describe the change of the reward, as far as its standard error supports it."""
    change = mean_change(questions)
    if change is None:
        return "Too few questions were scored to estimate a change."
    size = f"{change.mean:+.3f} ± {change.standard_error:.3f} (mean and standard error of {change.questions} questions)"
    if abs(change.mean) <= 2 * change.standard_error:
        return f"The reward changed by {size}: not distinguishable from chance."
    return f"The reward {'rose' if change.mean > 0 else 'fell'}: {size}."
