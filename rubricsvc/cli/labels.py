"""`rubricsvc labels` and `verdicts`: what people and what judges found, by criterion."""

from __future__ import annotations

from typing import Annotated

import typer

from rubricsvc.cli.commands import command, service
from rubricsvc.cli.importing import File, Format, import_and_report
from rubricsvc.cli.output import Json, Out, group, open_output, print_json, show
from rubricsvc.queries import ImportQuery, LabelFilters, VerdictFilters
from rubricsvc.schemas.base import every_row

app = group("Labels: people's verdicts, to compare judges with.")
verdicts = group("Verdicts of judges, by criterion.")


@command(app, "import", without=ImportQuery.model_fields.keys() - {"format", "skip_invalid"})
def import_(
    query: ImportQuery,
    file: File,
    *,
    format: Format = None,
    replace_labels: Annotated[
        bool, typer.Option("--replace", help="Replace earlier labels of the same annotators.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Import labels: by themselves, or in records with their prompts, rubrics and completions.

    A file is imported whole or not at all. Importing it again changes nothing.
    """
    import_and_report(file, query.model_copy(update={"noun": "labels"}), as_json)


@command(app, without=("after", "limit"))
def export(query: LabelFilters, out: Out = None, as_json: Json = False) -> None:
    """List labels; --out and --json write JSON lines that `rubricsvc labels import` reads."""
    columns = ("completion_id", "rubric", "label.criterion", "label.annotator", "label.value", "label.note")
    with service() as s:
        rows = every_row(s.labels.page, **query.model_dump(exclude={"after", "limit"}))
        if out is None and not as_json:
            show(rows, columns=columns, empty="no labels; import some with `rubricsvc labels import FILE`")
            return
        with open_output(out) as stream:
            for row in rows:
                print_json(row.model_dump(exclude={"id", "created_at", "label"}) | row.label.model_dump(), stream)


@command(verdicts, "list")
def list_verdicts(query: VerdictFilters, as_json: Json = False) -> None:
    """List verdicts."""
    ids = ("id", "completion_id", "rubric_id", "judge_id")
    found = ("verdict.criterion", "verdict.outcome", "verdict.value", "verdict.reason", "verdict.rationale")
    with service() as s:
        show(s.verdicts.page(query), as_json, columns=(*ids, *found), empty="no verdicts")
