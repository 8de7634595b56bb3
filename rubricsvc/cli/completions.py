"""`rubricsvc completions`: completions of prompts."""

from __future__ import annotations

from typing import Annotated

import typer

from rubricsvc.cli.completion_sampling import generate
from rubricsvc.cli.importing import CompletionFormat, File, SkipInvalid, import_and_report
from rubricsvc.cli.options import command
from rubricsvc.cli.output import Json, PromptFilter, clean, group, print_data, show
from rubricsvc.cli.service import service
from rubricsvc.queries import CompletionFilters, ImportQuery
from rubricsvc.services.importing import COMPLETIONS, RECORDS

app = group("Completions of prompts.")
app.command()(generate)

_COLUMNS = ("id", "prompt_id", "completion.policy", "completion.step")


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


@command(app, "list")
def list_(query: CompletionFilters, prompt_id: PromptFilter = None, as_json: Json = False) -> None:
    """List completions."""
    empty = "no completions; add some with `rubricsvc completions import` or `rubricsvc completions generate`"
    with service() as s:
        show(s.completions.page(query), as_json, columns=(*_COLUMNS, "completion.text"), empty=empty)


@app.command("show")
def show_(completion_id: Annotated[int, typer.Argument(help="Id of the completion.")], as_json: Json = False) -> None:
    """Show one completion."""
    with service() as s:
        found = s.completions.get(completion_id)
    show(found, as_json, columns=_COLUMNS)
    if not as_json:
        print_data(f"\n{clean(found.completion.text)}")
