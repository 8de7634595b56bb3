"""The demo's report: one HTML page that needs nothing else, with what was measured, whichever way it went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rubricsvc.cli.demo.charts import drawn, question_chart, reward_chart
from rubricsvc.cli.demo.figures import (
    CriterionResult,
    Example,
    QuestionResult,
    SecondRubric,
    by_key,
    change,
    grouped,
    mean,
)
from rubricsvc.cli.demo.plan import Size
from rubricsvc.cli.html_page import render
from rubricsvc.core.verdict import Verdict


@dataclass(frozen=True)
class Report:
    """``steps`` are the trainer's metrics, ``digests`` the names by which what was used is found again."""

    summary: Mapping[str, Any]
    size: Size
    questions: Sequence[QuestionResult]
    steps: Sequence[Mapping[str, Any]]
    criteria: Sequence[CriterionResult]
    examples: Sequence[Example]
    second: Sequence[SecondRubric] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)


def write(path: Path, report: Report) -> None:
    """Render ``report`` to ``path``. What models wrote is escaped; the page asks for nothing from anywhere."""
    from markupsafe import Markup

    charts = {"questions": drawn(question_chart(report.questions))}
    if report.steps:
        charts["curve"] = drawn(reward_chart(report.steps))
    page = render(
        Path(__file__).with_name("report.html.j2"),
        {"number": number, "signed": signed, "found": found, "mean": mean},
        report=report,
        summary=report.summary,
        size=report.size,
        criteria=grouped(report.criteria, lambda row: row.question),
        keys=by_key(report.criteria),
        training=sentence([q for q in report.questions if not q.held_out]),
        held_out=sentence([q for q in report.questions if q.held_out]),
        charts={name: {width: Markup(svg) for width, svg in both.items()} for name, both in charts.items()},  # noqa: S704 - vega made it, and escapes the questions in it
    )
    path.write_text(page, encoding="utf-8")


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"


def found(verdict: Verdict) -> str:
    """A verdict's value; or what is there instead of one."""
    if verdict.value is not None:
        return number(verdict.value)
    return f"failed: {verdict.reason}" if verdict.outcome == "failed" else verdict.outcome


def sentence(questions: Sequence[QuestionResult]) -> str:
    """What happened to the reward, in words that the figures allow."""
    there = change(questions)
    if there is None:
        return "Too few questions were scored to say anything."
    size = f"{there.mean:+.3f} ± {there.standard_error:.3f} (mean and standard error over {there.questions} questions)"
    if abs(there.mean) <= 2 * there.standard_error:
        return f"The reward changed by {size}: not to be told from chance."
    return f"The reward {'rose' if there.mean > 0 else 'fell'}: {size}."
