"""`rubricsvc labels` and `verdicts`: what people and what judges found, by criterion."""

from __future__ import annotations

from typing import Annotated

import typer

from rubricsvc.cli.commands import command, local_service, service
from rubricsvc.cli.importing import File, LabelFormat, SkipInvalid, import_and_report
from rubricsvc.cli.output import Json, Out, group, open_output, print_json, show
from rubricsvc.queries import ImportQuery, LabelFilters, VerdictFilters
from rubricsvc.services.importing import LABELS, RECORDS

app = group("Labels: people's verdicts, to compare judges with.")
verdicts = group("Verdicts of judges, by criterion.")

_LABEL = ("label.criterion", "label.annotator", "label.value", "label.note")


@app.command("import")
def import_(
    file: File,
    *,
    format: LabelFormat = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace earlier labels of the same annotators.")] = False,
    skip_invalid: SkipInvalid = False,
    as_json: Json = False,
) -> None:
    """Import labels: by themselves, or in records with their prompts, rubrics and completions.

    A file is imported whole or not at all. Importing it again changes nothing.
    """
    query = ImportQuery(format=format, skip_invalid=skip_invalid, replace_labels=replace)
    import_and_report(file, query, as_json, kinds=(RECORDS, LABELS))


@command(app, "list")
def list_(query: LabelFilters, as_json: Json = False) -> None:
    """List labels."""
    with service() as s:
        empty = "no labels; import some with `rubricsvc labels import FILE`"
        show(s.labels.page(query), as_json, columns=("id", "completion_id", "rubric_id", *_LABEL), empty=empty)


@command(app, without=("after", "limit"))
def export(query: LabelFilters, out: Out = None) -> None:
    """Write labels as JSON lines that `rubricsvc labels import` reads."""
    with local_service() as local, open_output(out) as stream:
        for line in local.labels.export(query):
            print_json(line, stream)


@command(verdicts, "list")
def list_verdicts(query: VerdictFilters, as_json: Json = False) -> None:
    """List verdicts."""
    ids = ("id", "completion_id", "rubric_id", "judge_id")
    found = ("verdict.criterion", "verdict.outcome", "verdict.value", "verdict.reason", "verdict.rationale")
    with service() as s:
        show(s.verdicts.page(query), as_json, columns=(*ids, *found), empty="no verdicts")
