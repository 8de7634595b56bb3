"""An audit as one HTML page that needs nothing else."""

from __future__ import annotations

from pathlib import Path

from rubricsvc.cli.html_page import render
from rubricsvc.cli.output import clean, open_output
from rubricsvc.core.audit import Audit
from rubricsvc.core.judge import Judge


def write(path: Path, judge: Judge, audit: Audit) -> None:
    """Render ``audit`` to ``path``. What models and attackers wrote is escaped; the page asks for nothing."""
    template = Path(__file__).with_name("audit_report.html.j2")
    page = render(template, {"clean": clean, "number": number, "percent": percent}, judge=judge, audit=audit)
    with open_output(path) as stream:
        stream.write(page)


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def percent(value: float | None) -> str:
    return f"{100 * (value or 0.0):.2f}%"
