"""`rubricsvc judges`: who judges, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rubricsvc.cli.agreement import agreement
from rubricsvc.cli.audit import audit
from rubricsvc.cli.calibrate import calibrate
from rubricsvc.cli.database import database
from rubricsvc.cli.judge_add import add
from rubricsvc.cli.judge_row import row_of
from rubricsvc.cli.output import After, Json, Limit, group, print_json, show, show_page
from rubricsvc.cli.panel import cascade, panel

if TYPE_CHECKING:
    from rubricsvc.store.tables import AuditRow, JudgeRow

app = group("Judges: who judges, and how.")
app.command()(add)
app.command()(agreement)
app.command()(audit)
app.command()(panel)
app.command()(cascade)
app.command()(calibrate)


@app.command("list")
def list_(limit: Limit = 50, after: After = 0, as_json: Json = False) -> None:
    """List judges."""
    from rubricsvc.store import audits, judges

    with database() as db, db.read() as session:

        def fetch(most: int) -> list[tuple[JudgeRow, AuditRow | None]]:
            rows = judges.page(session, after=after, limit=most)
            audited = audits.newest(session, [row.id for row in rows])
            return [(row, audited.get(row.id)) for row in rows]

        empty = "no judges; add one with `rubricsvc judges add NAME --embedded`"
        show_page(fetch, lambda both: row_of(*both), limit, as_json, empty=empty)


@app.command("show")
def show_(ref: Annotated[str, typer.Argument(help="Name or id.")], as_json: Json = False) -> None:
    """Show one judge; with --json its newest audit whole."""
    from rubricsvc.store import audits, judges

    with database() as db, db.read() as session:
        row = judges.get(session, ref)
        audited = audits.newest(session, [row.id]).get(row.id)
        if as_json:
            kept = audited and audited.value.model_dump(mode="json")
            print_json(row_of(row, audited) | {"digest": row.digest, "judge": row.content, "newest_audit": kept})
        else:
            rates = {one.name: one.rate.value for one in audited.value.audit.suites} if audited else {}
            shown = row_of(row, audited)
            content = {name: value for name, value in row.content.items() if name not in shown}
            show(shown | {"digest": row.digest, "audit_rates": rates} | content, False)
