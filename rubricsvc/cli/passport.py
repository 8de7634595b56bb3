"""`rubricsvc judges passport`: what a trained judge was made from, and what it reaches."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from rubricsvc.cli import output
from rubricsvc.cli.agreement import JudgeRef
from rubricsvc.cli.audit import failures_text
from rubricsvc.cli.db import database
from rubricsvc.cli.output import Json, estimate_cells, number, print_data, print_json, print_table
from rubricsvc.core.passport import Measure, Passport, Row, Table
from rubricsvc.errors import InvalidError
from rubricsvc.store import judges

MAX_SHOWN = 5
"""Test sets whose figures `judges show` prints."""


def passport(
    ref: JudgeRef,
    *,
    out: Annotated[Path | None, typer.Option(help="Write an HTML page to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Print the passport of a trained judge: figures beside baselines, data, what it must not be used for.

    --out writes a page with charts, which holds everything in itself, needs no script and loads nothing. --json prints
    the file that `judges add --passport` reads.
    """
    if out is not None and as_json:
        raise InvalidError("--out and --json exclude each other", hint="give one of them")
    with database() as db, db.read() as session:
        value, judge = judges.passport(session, ref), judges.get(session, ref).value
    if as_json:
        print_json(value.model_dump(mode="json"))
    elif out is not None:
        from rubricsvc.web.passport import render_passport

        with output.open_output(out) as stream:
            stream.write(render_passport(judge, value))
    else:
        _print(value)


def figure_texts(value: Passport) -> dict[str, Any]:
    """Return the main figures of a passport, and what the judge must not be used for, as fields of a record."""
    return {
        "trained_on": [source.name for source in value.data if not source.absent],
        "figures": "; ".join(figure_lines([table for table in value.tables if table.whole][:MAX_SHOWN])),
        "not_for": " ".join(value.not_for),
    }


def figure_fields(value: Passport) -> dict[str, Any]:
    """Return the same as values for JSON, and the result of the audit."""
    audit = value.audit
    failed = {suite.name: suite.rate.value for suite in audit.failed_suites} if audit else {}
    return {
        "trained_on": [source.name for source in value.data if not source.absent],
        "figures": [_fields(table) for table in value.tables if table.whole],
        "not_for": list(value.not_for),
        "audit": audit and {"passed": audit.passed, "failed": failed},
    }


def _fields(table: Table) -> dict[str, Any]:
    row, base, best = table.trained, table.untrained, table.best_baseline
    figures = row[table.measure].model_dump() if row else {}
    return {
        "test_set": table.name,
        "measure": table.measure,
        "n": row and row.n,
        **figures,
        "untrained": base and base[table.measure].value,
        "best_baseline": best and {"scorer": best.scorer, "value": best[table.measure].value},
    }


def measured_texts(value: Passport) -> dict[str, str]:
    """Return the calibration, the repeatability and the audit of a passport, where they were measured."""
    report, again, audit = value.calibration, value.repeatability, value.audit
    texts = {}
    if report is not None and report.before.value is not None:
        errors = [
            " ".join(estimate_cells(one)).strip() for one in (report.before, report.after) if one.value is not None
        ]
        texts["calibration error"] = " before, ".join(errors) + (" after" if len(errors) > 1 else ", not calibrated")
    if again is not None:
        texts["reward_std"] = " ".join(estimate_cells(again.reward, 4)).strip()
    result = "not measured" if audit is None else f"not passed: {failures_text(audit)}"
    texts["audit"] = "passed" if audit and audit.passed else result
    return texts


def figure_lines(tables: Iterable[Table]) -> list[str]:
    """Return the judge's figure on each test set, with its interval and the best baseline."""
    return [_text(table) for table in tables]


def _text(table: Table) -> str:
    row, best = table.trained, table.best_baseline
    text = " ".join((table.measure, *estimate_cells(row[table.measure]))) if row else "not measured"
    return f"{table.name}: {text.strip()}" + (f" ({best.scorer} {number(best[table.measure].value)})" if best else "")


def _print(value: Passport) -> None:
    """Print the figures, the ablations, the data, the audit, and on what the judge must not be used."""
    columns = ("measure", "n", "trained", "95%", "untrained", "best baseline", "", "pairwise accuracy")
    whole = [table for table in value.tables if table.whole]
    for heading, tables in [("test set", whole), *((table.name, table.parts) for table in value.tables)]:
        if tables:
            print_table((heading, *columns), map(_cells, tables))
            print_data("")
    if value.ablations:
        rows = [
            [
                one.left_out,
                one.table,
                one.measure,
                number(one.complete.value),
                number(one.without.value),
                number(one.gain),
            ]
            for one in value.ablations
        ]
        print_table(("left out of the data", "test set", "measure", "with it", "without it", "adds"), rows)
        print_data("")
    counts = ("completions", "questions", "pairs", "duplicates", "contradictions")
    sources = [
        [one.name, *(getattr(one, name) for name in counts), number(one.share), one.license, one.absent]
        for one in value.data
    ]
    print_table(("data", *counts, "share", "license", ""), sources)
    print_data(f"\nbase: {value.base.name}, {value.base.license}")
    for name, text in measured_texts(value).items():
        print_data(f"{name}: {text}")
    for sentence in value.not_for:
        print_data(f"not for: {output.clean(sentence)}")


def _cells(table: Table) -> list[Any]:
    trained, untrained, best = table.trained, table.untrained, table.best_baseline
    figures = [row and row[table.measure] for row in (trained, untrained, best)]
    return [
        table.name,
        table.measure,
        trained and trained.n,
        *estimate_cells(figures[0]),
        estimate_cells(figures[1])[0],
        estimate_cells(figures[2])[0],
        best.scorer if best else trained and _without_figure(trained, table.measure),
        "" if trained is None or (pairwise := trained["pairwise_accuracy"]).value is None else number(pairwise.value),
    ]


def _without_figure(row: Row, measure: Measure) -> str:
    """Return the accuracy where there is no figure, as of one class."""
    accuracy = row["accuracy"].value
    if row[measure].value is not None or accuracy is None:
        return ""
    return f"accuracy {number(accuracy)}" + ("; one class" if row.positives in (0, row.n) else "; few of one class")
