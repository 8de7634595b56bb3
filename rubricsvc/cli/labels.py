"""`rubricsvc labels`: people's verdicts, to compare judges with."""

from __future__ import annotations

from functools import cache, lru_cache, partial
from typing import Annotated, Any

import typer
from sqlalchemy.orm import Session

from rubricsvc.cli.db import database
from rubricsvc.cli.importing import File, LabelFormat, SkipInvalid, import_and_report
from rubricsvc.cli.output import After, Json, Limit, Out, fields_of, group, open_output, print_json, show_page
from rubricsvc.queries import ImportQuery
from rubricsvc.services.importing import LABELS, RECORDS
from rubricsvc.store import completions, jobs, labels, rubrics
from rubricsvc.store.session import every

app = group("Labels: people's verdicts, to compare judges with.")

COLUMNS = ("id", "completion_id", "rubric_id", "criterion", "annotator", "value", "note")

Completion = Annotated[int | None, typer.Option(help="Filter by completion.")]
Rubric = Annotated[str | None, typer.Option(help="Filter by rubric: id, name, name@version or digest.")]
Annotator = Annotated[str | None, typer.Option(help="Filter by annotator.")]
Job = Annotated[int | None, typer.Option(help="Filter by the completions of a job.")]


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


@app.command("list")
def list_(
    *,
    completion: Completion = None,
    rubric: Rubric = None,
    annotator: Annotator = None,
    job: Job = None,
    limit: Limit = 100,
    after: After = 0,
    as_json: Json = False,
) -> None:
    """List labels."""
    with database() as db, db.read() as session:
        where = _where(session, completion, rubric, annotator, job)
        rows = labels.page(session, after=after, limit=limit + 1, **where)
        empty = "no labels; import some with `rubricsvc labels import FILE`"
        show_page(rows, lambda row: fields_of(row, *COLUMNS), limit, as_json, empty=empty)


@app.command()
def export(
    *,
    completion: Completion = None,
    rubric: Rubric = None,
    annotator: Annotator = None,
    job: Job = None,
    out: Out = None,
) -> None:
    """Write labels as JSON lines that `rubricsvc labels import` reads."""
    with database() as db, db.read() as session, open_output(out) as stream:
        get_rubric = cache(partial(rubrics.get, session))
        get_digests = lru_cache(maxsize=10_000)(partial(completions.digests, session))
        for row in every(labels.page, session, **_where(session, completion, rubric, annotator, job)):
            version = get_rubric(row.rubric_id)
            name = f"{version.name}@{version.version}"
            ids = {"completion_id": row.completion_id, "rubric": name, "rubric_id": row.rubric_id}
            names = ("prompt_digest", "completion_digest", "rubric_digest")
            digests = zip(names, (*get_digests(row.completion_id), version.digest), strict=True)
            print_json(ids | row.label.model_dump(mode="json") | dict(digests), stream)


def _where(
    session: Session, completion: int | None, rubric: str | None, annotator: str | None, job: int | None
) -> dict[str, Any]:
    if completion is not None:
        completions.get(session, completion)
    if job is not None:
        jobs.get(session, job)
    rubric_id = rubrics.get(session, rubric).id if rubric is not None else None
    return {"completion_id": completion, "rubric_id": rubric_id, "annotator": annotator, "job_id": job}
