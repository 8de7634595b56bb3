"""`rubricsvc rubrics submit`, `approve`, `reject`, `retire`, `comment` and `history`: the review of a version."""

from __future__ import annotations

from itertools import groupby
from typing import Annotated, Any

import typer

from rubricsvc.cli.db import database
from rubricsvc.cli.importing import By, edit_of
from rubricsvc.cli.output import Json, fields_of, print_json, show, show_list
from rubricsvc.core.states import ReviewAction
from rubricsvc.services.reviewing import history_of, review
from rubricsvc.store import rubrics
from rubricsvc.store.session import every
from rubricsvc.store.tables import RubricEventRow, RubricRow, RubricTestRow

Ref = Annotated[str, typer.Argument(help="Id, name@version or digest; or a name, if one version of it is meant.")]
Comment = Annotated[str | None, typer.Option("--comment", "-m", help="Comment.")]
Reason = Annotated[str, typer.Option("--comment", "-m", help="Comment.", show_default=False)]


def submit(ref: Ref, comment: Comment = None, by: By = None, as_json: Json = False) -> None:
    """Submit a draft for review."""
    _review(ref, "submit", comment, by, as_json)


def approve(ref: Ref, comment: Comment = None, by: By = None, as_json: Json = False) -> None:
    """Approve a version that is in review or retired: jobs may use it, and its name refers to the newest one."""
    _review(ref, "approve", comment, by, as_json)


def reject(ref: Ref, comment: Reason, by: By = None, as_json: Json = False) -> None:
    """Reject a version that is in review: it is a draft again."""
    _review(ref, "reject", comment, by, as_json)


def retire(ref: Ref, comment: Comment = None, by: By = None, as_json: Json = False) -> None:
    """Retire an approved version: its name refers to the newest approved version that is left."""
    _review(ref, "retire", comment, by, as_json)


def comment(
    ref: Ref, text: Annotated[str, typer.Argument(help="Comment.")], by: By = None, as_json: Json = False
) -> None:
    """Comment on a version."""
    _review(ref, "comment", text, by, as_json)


def _review(ref: str, action: ReviewAction, comment: str | None, by: str | None, as_json: bool) -> None:
    person = edit_of(by).by or ""
    with database() as db, db.write() as session:
        row = review(session, ref, action, by=person, comment=comment)
    show({"id": row.id, "rubric": row.ref, "state": row.state}, as_json)


def history(
    ref: Annotated[str, typer.Argument(help="Id, name (all versions), name@version or digest.")], as_json: Json = False
) -> None:
    """Show who added a version, its tests, and the steps of its review; of a name those of all versions."""
    with database() as db, db.read() as session:
        versions = history_of(session, ref)
        events = sorted(every(rubrics.events, session, rubric_ids=list(versions)), key=lambda row: row.rubric_id)
        tests = [
            _test_entry(row, one)
            for id_, row in versions.items()
            for one in every(rubrics.tests, session, rubric_id=id_)
        ]
    by_version = {id_: list(rows) for id_, rows in groupby(events, key=lambda row: row.rubric_id)}
    entries = [entry for id_, row in versions.items() for entry in _entries(row, by_version.get(id_, []))] + tests
    entries.sort(key=lambda entry: entry["created_at"])
    if as_json:
        for entry in entries:
            print_json(entry | {"created_at": entry["created_at"].isoformat()})
        return
    show_list(
        {
            "when": f"{entry['created_at']:%Y-%m-%d %H:%M}",
            "rubric": entry["rubric"],
            "by": entry["by"] or "",
            "step": _step(entry),
            "comment": entry["comment"] or "",
        }
        for entry in entries
    )


def _entries(row: RubricRow, events: list[RubricEventRow]) -> list[dict[str, Any]]:
    """Return that the version was added, and its events."""
    state = events[0].from_state if events else row.state
    added = {"from_state": None, "to_state": state, "by": row.added_by, "comment": None}
    names = ("created_at", "from_state", "to_state", "by", "comment")
    steps = [fields_of(event, *names) for event in events]
    return [{"rubric": row.ref, **entry} for entry in ({"created_at": row.created_at, **added}, *steps)]


def _test_entry(row: RubricRow, test: RubricTestRow) -> dict[str, Any]:
    """Return a test of a version, which leaves its state as it is."""
    fields = {"created_at": test.created_at, "from_state": None, "to_state": None, "by": test.by}
    return {"rubric": row.ref, **fields, "comment": f"by judge {test.test.judge}", "test": test.outcome}


def _step(entry: dict[str, Any]) -> str:
    if "test" in entry:
        return f"test {entry['test']}"
    before, after = (entry[name] and entry[name].replace("_", " ") for name in ("from_state", "to_state"))
    if before is None:
        return f"added as {after}"
    return "comment" if before == after else f"{before} → {after}"
