"""`rubricsvc labels`: people's verdicts, to compare judges with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli.database import database
from rubricsvc.cli.importing import File, Format, Language, SkipInvalid, import_and_report, options_of
from rubricsvc.cli.output import After, Json, Limit, group, shorten, show_page
from rubricsvc.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.orm import Session

    from rubricsvc.formats import InputFile
    from rubricsvc.store.tables import LabelRow

app = group("Labels: people's verdicts, to compare judges with.")

PAGE = 500

Completion = Annotated[int | None, typer.Option(help="Filter by completion.")]
Rubric = Annotated[str | None, typer.Option(help="Filter by rubric: id, name, name@version or digest.")]
Annotator = Annotated[str | None, typer.Option(help="Filter by annotator.")]


@app.command("import")
def import_(
    file: File,
    *,
    format: Format = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace earlier labels of the same annotators.")] = False,
    skip_invalid: SkipInvalid = False,
    language: Language = None,
    as_json: Json = False,
) -> None:
    """Import labels: by themselves, or in records with their prompts, rubrics and completions.

    A file is imported whole or not at all. Importing it again changes nothing.
    """
    from rubricsvc.services.importing import LABELS, RECORDS, ImportResult, import_file
    from workers import checks

    def run(session: Session, source: InputFile) -> ImportResult:
        result = import_file(
            session,
            source,
            format,
            kinds=(RECORDS, LABELS),
            replace_labels=replace,
            skip_invalid=skip_invalid,
            check=checks.validate,
            options=options_of(language),
        )
        if not result.label_ids:
            hint = "docs/formats.md describes labels; import files without labels with `rubricsvc rubrics import`"
            what = "labels, but not the completions that they belong to" if result.omitted_labels else "no labels"
            raise InvalidError(f"{result.file} has {what}", hint=hint)
        return result

    import_and_report(file, as_json, run)


@app.command("list")
def list_(
    *,
    completion: Completion = None,
    rubric: Rubric = None,
    annotator: Annotator = None,
    limit: Limit = 100,
    after: After = 0,
    as_json: Json = False,
) -> None:
    """List labels."""
    from rubricsvc.store import labels

    with database() as db, db.read() as session:
        where = _where(session, completion, rubric, annotator)
        show_page(
            lambda n: labels.page(session, after=after, limit=n, **where),
            lambda row: _row(row) if as_json else _row(row) | {"note": shorten(row.note or "-", 50)},
            limit,
            as_json,
            empty="no labels; import some with `rubricsvc labels import FILE`",
        )


@app.command()
def export(
    *,
    completion: Completion = None,
    rubric: Rubric = None,
    annotator: Annotator = None,
    out: Annotated[Path | None, typer.Option(help="Output file.", show_default="stdout")] = None,
) -> None:
    """Write labels as JSON lines that `rubricsvc labels import` reads."""
    import json

    from rubricsvc.cli.output import open_output
    from rubricsvc.store import rubrics

    with database() as db, db.read() as session, open_output(out) as stream:
        names: dict[int, str] = {}
        for row in _all(session, _where(session, completion, rubric, annotator)):
            if row.rubric_id not in names:
                rubric_row = rubrics.get(session, row.rubric_id)
                names[row.rubric_id] = f"{rubric_row.name}@{rubric_row.version}"
            ids = {"completion_id": row.completion_id, "rubric": names[row.rubric_id], "rubric_id": row.rubric_id}
            stream.write(
                json.dumps(ids | row.label.model_dump(mode="json"), ensure_ascii=False, allow_nan=False) + "\n"
            )


def _where(session: Session, completion: int | None, rubric: str | None, annotator: str | None) -> dict[str, Any]:
    from rubricsvc.store import completions, rubrics

    if completion is not None:
        completions.get(session, completion)
    rubric_id = rubrics.get(session, rubric).id if rubric is not None else None
    return {"completion_id": completion, "rubric_id": rubric_id, "annotator": annotator}


def _all(session: Session, where: dict[str, Any]) -> Iterator[LabelRow]:
    from rubricsvc.store import labels

    after = 0
    while rows := labels.page(session, after=after, limit=PAGE, **where):
        yield from rows
        after = rows[-1].id


def _row(row: LabelRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "completion_id": row.completion_id,
        "rubric_id": row.rubric_id,
        "criterion": row.criterion,
        "annotator": row.annotator,
        "value": row.value,
        "note": row.note,
    }
