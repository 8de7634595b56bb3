"""`rubricsvc prompts`: prompts of the policy."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rubricsvc.cli.db import database
from rubricsvc.cli.options import command
from rubricsvc.cli.output import Json, clean, group, print_data, print_json, show
from rubricsvc.cli.prompt_synthesis import synthesize
from rubricsvc.cli.service import service
from rubricsvc.core.states import APPROVED
from rubricsvc.queries import Paging
from rubricsvc.store import prompts, rubrics
from rubricsvc.store.tables import PromptRow

app = group("Prompts of the policy.")

app.command()(synthesize)


def _row(row: PromptRow) -> dict[str, Any]:
    return {"id": row.id, "external_id": row.external_id, "messages": len(row.value.messages)}


@command(app, "list")
def list_(query: Paging, as_json: Json = False) -> None:
    """List prompts."""
    empty = "no prompts; import some with `rubricsvc rubrics import FILE` or `completions import FILE`"
    with service() as s:
        show(s.prompts.page(query), as_json, columns=("id", "external_id", "prompt.text"), empty=empty)


@app.command("show")
def show_(
    ref: Annotated[str, typer.Argument(help="Id, or the id in the imported file.")], as_json: Json = False
) -> None:
    """Show one prompt with its rubrics."""
    with database() as db, db.read() as session:
        row = prompts.get(session, ref)
        versions = rubrics.for_prompt(session, row.id, allow_drafts=True)
        names = {
            "rubrics": [one.ref for one in versions if one.state == APPROVED],
            "drafts": [one.ref for one in versions if one.state != APPROVED],
        }
        if as_json:
            print_json(_row(row) | names | {"prompt": row.content})
        else:
            show(_row(row) | names | {"reference": row.value.reference})
            print_data(f"\n{clean(row.value.text)}")
