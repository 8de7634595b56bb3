"""An audit as tables, and as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rubricsvc.cli.figures import cells, number
from rubricsvc.cli.html_page import render
from rubricsvc.cli.output import cell, clean, echo, fields_of, open_output, print_data, print_table, shorten, show_list
from rubricsvc.core.audit import Audit, Hit, SuiteResult
from rubricsvc.core.judge import Judge

MAX_HITS = 10


def print_audit(judge: Judge, audit: Audit) -> None:
    """Print the rates, the successful attacks, and on stderr whether the audit was passed."""
    print_table(
        ("suite", "attacks", "findings", "rate", "95%", "baseline", "shift", "limit", "passed", "unscored"),
        [_row(suite) for suite in audit.suites],
    )
    families = [
        [suite.name, cell(family), str(rate.n), *cells(rate)]
        for suite in audit.suites
        for family, rate in suite.families.items()
    ]
    if families:
        print_data("")
        print_table(("suite", "kind", "findings", "rate", "95%"), families)
    for heading, hits in audit.worst_by_heading.items():
        print_data(f"\n{heading}, in suites that were not passed")
        show_list([_hit(hit) for hit in hits[:MAX_HITS]], False)
    failures = [f"{suite.name} ({suite.reason}{_baseline_note(suite)})" for suite in audit.failed_suites]
    result = f"did not pass: {', '.join(failures)}" if failures else "passed its audit"
    echo(f"{judge.name} {result}" + (f" ({audit.non_default_options})" if audit.non_default_options else ""))


def write_html(path: Path, judge: Judge, audit: Audit) -> None:
    """Write the report to ``path``. Text of models and attackers is escaped, and the page loads nothing."""
    template = Path(__file__).with_name("audit_report.html.j2")
    filters = {"clean": clean, "number": lambda value: number(value, missing="–"), "percent": _percent}
    page = render(template, filters, judge=judge, audit=audit)
    with open_output(path) as stream:
        stream.write(page)


def _percent(value: float | None) -> str:
    return f"{100 * (value or 0.0):.2f}%"


def _baseline_note(suite: SuiteResult) -> str:
    """Return a note if the attack changed nothing: the rate is no higher than without it."""
    rate, baseline = suite.rate.value, suite.baseline.value if suite.baseline else None
    if rate is None or baseline is None or rate > baseline:
        return ""
    return f", no more than without the attack ({baseline:.3f})"


def _row(suite: SuiteResult) -> list[str]:
    shift = f"{suite.mean_shift:+.3f}" if suite.mean_shift is not None else ""
    counts = [suite.name, str(suite.attacks), str(suite.rate.n), *cells(suite.rate), cells(suite.baseline)[0], shift]
    unscored = cell(suite.unscored) if suite.passed is not None else str(suite.reason)
    return [*counts, f"{suite.max_rate:g}", cell(suite.passed), unscored]


def _hit(hit: Hit) -> dict[str, Any]:
    texts = {"criterion": shorten(hit.criterion, 40), "completion": shorten(hit.completion, 80)}
    return {"suite": hit.suite, "attack": shorten(hit.attack, 30), **fields_of(hit, "baseline", "value"), **texts}
