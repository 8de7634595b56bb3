"""`rubricsvc judges`: judges, and what is known of their quality."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rubricsvc.cli.agreement import agreement
from rubricsvc.cli.audit import audit
from rubricsvc.cli.calibrate import calibrate
from rubricsvc.cli.database import database
from rubricsvc.cli.judge_add import add, init, update
from rubricsvc.cli.judge_row import judge_row
from rubricsvc.cli.output import After, Json, Limit, group, print_json, show, show_page
from rubricsvc.cli.repeatability import repeatability
from rubricsvc.formats.judges import dump_judge
from rubricsvc.store import audits, judges

app = group("Judges: add, test and compare them.")
app.command()(add)
app.command()(init)
app.command()(update)
app.command()(agreement)
app.command()(audit)
app.command()(calibrate)
app.command()(repeatability)


Ref = Annotated[str, typer.Argument(help="Name or id.")]


@app.command("list")
def list_(limit: Limit = 50, after: After = 0, as_json: Json = False) -> None:
    """List judges."""
    with database() as db, db.read() as session:
        rows = judges.page(session, after=after, limit=limit + 1)
        newest = audits.newest(session, [row.id for row in rows])
        empty = "no judges; add one with `rubricsvc judges add NAME --embedded`"
        show_page(rows, lambda row: judge_row(row, newest.get(row.id)), limit, as_json, empty=empty)


@app.command("show")
def show_(
    ref: Ref,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print a judge file.")] = False,
    as_json: Json = False,
) -> None:
    """Show a judge. With --json its newest audit and its repeatability are complete."""
    with database() as db, db.read() as session:
        row = judges.get(session, ref)
        if as_yaml:
            dump_judge(row.value, sys.stdout)
            return
        audit = audits.newest(session, [row.id]).get(row.id)
        fields = judge_row(row, audit) | {"digest": row.digest}
        if as_json:
            newest = audit and audit.value.model_dump(mode="json")
            print_json(fields | {"judge": row.content, "newest_audit": newest, "repeatability": row.repeatability})
        else:
            rates = {suite.name: suite.rate.value for suite in audit.value.audit.suites} if audit else {}
            content = {name: value for name, value in row.content.items() if name not in fields}
            show(fields | {"audit_rates": rates} | content, False)
