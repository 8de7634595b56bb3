"""`rubricsvc completions`: completions of prompts."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rubricsvc.cli.completion_sampling import generate
from rubricsvc.cli.db import database
from rubricsvc.cli.importing import CompletionFormat, File, SkipInvalid, import_and_report
from rubricsvc.cli.output import After, Json, Limit, PromptFilter, clean, group, print_data, print_json, show, show_page
from rubricsvc.queries import ImportQuery
from rubricsvc.services.importing import COMPLETIONS, RECORDS
from rubricsvc.store import completions, prompts
from rubricsvc.store.tables import CompletionRow

app = group("Completions of prompts.")
app.command()(generate)


@app.command("import")
def import_(
    file: File,
    format: CompletionFormat = None,
    skip_invalid: SkipInvalid = False,
    as_json: Json = False,
) -> None:
    """Import completions and prompts, without rubrics.

    A file is imported whole or not at all. Importing it again changes nothing.
    """
    query = ImportQuery(format=format, skip_invalid=skip_invalid)
    import_and_report(file, query, as_json, kinds=(RECORDS, COMPLETIONS), with_rubrics=False)


def _row(row: CompletionRow) -> dict[str, Any]:
    completion = row.value
    content = {"step": completion.step, "external_id": completion.id, "characters": len(completion.text)}
    return {"id": row.id, "prompt_id": row.prompt_id, "policy": row.policy} | content


@app.command("list")
def list_(
    *,
    prompt: PromptFilter = None,
    policy: Annotated[str | None, typer.Option(help="Filter by policy.")] = None,
    limit: Limit = 50,
    after: After = 0,
    as_json: Json = False,
) -> None:
    """List completions."""
    with database() as db, db.read() as session:
        prompt_id = prompts.get(session, prompt).id if prompt is not None else None
        rows = completions.page(session, after=after, limit=limit + 1, prompt_id=prompt_id, policy=policy)
        empty = "no completions; add some with `rubricsvc completions import` or `rubricsvc completions generate`"
        show_page(rows, lambda row: _row(row) | {"text": row.value.text}, limit, as_json, empty=empty)


@app.command("show")
def show_(completion_id: Annotated[int, typer.Argument(help="Id of the completion.")], as_json: Json = False) -> None:
    """Show one completion."""
    with database() as db, db.read() as session:
        row = completions.get(session, completion_id)
        if as_json:
            print_json(_row(row) | {"completion": row.content})
        else:
            show(_row(row))
            print_data(f"\n{clean(row.value.text)}")
