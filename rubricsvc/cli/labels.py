"""`rubricsvc labels` and `verdicts`: what people and what judges found, by criterion."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import typer

from rubricsvc.cli.commands import Service, command, service
from rubricsvc.cli.importing import File, Format, import_and_report
from rubricsvc.cli.output import Json, Out, clean, group, open_output, replaced, show
from rubricsvc.core.rubric import Numeric
from rubricsvc.core.scale_values import level_values, written_value
from rubricsvc.core.verdict import Label
from rubricsvc.errors import InvalidError
from rubricsvc.formats.input_file import neutralized
from rubricsvc.formats.record import SHEET
from rubricsvc.formats.writing import write_text
from rubricsvc.queries import ImportQuery, LabelFilters, VerdictFilters
from rubricsvc.schemas.base import every_row

app = group("Labels: people's verdicts. `judges agreement` compares people, or a judge with them.")
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


@command(app, without=("after", "limit", "completion_id"))
def export(
    query: LabelFilters,
    *,
    blind: Annotated[bool, typer.Option("--blind", help="Write the sheet to fill in, for --job.")] = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """List labels, or with --blind write a sheet to label a job's completions: no verdicts, no policies.

    --out and --json write JSON lines that `rubricsvc labels import` reads; so are sheets, --out FILE.csv and, with the
    extra excel, FILE.xlsx. That to fill in has a row for each judged criterion, in which a blank value is no label.
    """
    columns = ("id", "completion_id", "rubric", "label.criterion", "label.annotator", "label.value", "label.note")
    ending, endings = out.suffix.lower() if out else "", (".csv", ".xlsx") if blind else (".csv", ".xlsx", ".jsonl")
    if ending not in ("", *endings):
        raise InvalidError(f"labels are not written as {ending}", hint=f"use one of {', '.join(endings)}", path="out")
    with service() as s:
        if blind:
            if query.job_id is None:
                raise InvalidError("a sheet is of the completions of a job", hint="name it: --job ID", path="job")
            write_sheet(SHEET, sheet_rows(s, query), out)
            return
        rows = every_row(s.labels.page, **query.model_dump(exclude={"after", "limit"}))
        if out is None and not as_json:
            show(rows, columns=columns, empty="no labels; import some with `rubricsvc labels import FILE`")
            return
        lines = (row.model_dump(exclude={"id", "created_at", "label"}) | row.label.model_dump() for row in rows)
        if ending in (".csv", ".xlsx"):
            scale = cache(lambda ref: {one.key: one.scale for one in s.rubrics.get(ref).rubric.criteria}.get)
            sheet = (
                one | {"value": written_value(scale(one["rubric"])(one["criterion"]), one["value"])} for one in lines
            )
            write_sheet(_COLUMNS, (map(one.get, _COLUMNS) for one in sheet), out)
            return
        with open_output(out) as stream:
            write_text(lines, stream, "jsonl")


def sheet_rows(s: Service, query: LabelFilters) -> Iterator[tuple[str | int, ...]]:
    """Yield the cells of a `SHEET` of a job: prompts by id, their completions by digest, which hides the policy."""
    rubric, prompt, rows = cache(s.rubrics.get), cache(s.prompts.get), list[dict[str, Any]]()
    digests = cache(lambda id_: {one.id: one.digest for one in every_row(s.completions.page, prompt_id=id_)})
    after: int | None = 0
    only = query.rubric_id and rubric(query.rubric_id).digest
    while after is not None:
        part = s.jobs.export(query.job_id or 0, after=after)
        rows, after = [*rows, *part.rows], part.next
    rows = [row | {"digest": digests(row["prompt_id"])[row["completion_id"]]} for row in rows]
    for row in sorted(rows, key=itemgetter("prompt_id", "digest")):
        if only in (None, row["rubric_digest"]):
            names, texts = (prompt(row["prompt_id"]).digest, row["digest"]), (row["prompt"], row["completion"])
            for one in rubric(row["rubric"]).rubric.criteria:
                if one.check is None:
                    words = " / ".join(level_values(one.scale))
                    values = f"{one.scale.low:g} to {one.scale.high:g}" if isinstance(one.scale, Numeric) else words
                    yield *names, row["rubric"], one.key, query.annotator or "", "", "", *texts, one.text, values


def write_sheet(columns: Sequence[str], rows: Iterable[Iterable[Any]], out: Path | None) -> None:
    """Write rows as CSV, with the mark by which Excel knows UTF-8, or to FILE.xlsx as a workbook."""
    rows = [[neutralized(cell) for cell in row] for row in chain([columns], rows)]
    if out is None or out.suffix.lower() != ".xlsx":
        with open_output(out) as stream:
            stream.write("\ufeff")
            csv.writer(stream, lineterminator="\n").writerows(rows)
        return
    from openpyxl import Workbook
    from openpyxl.styles import Alignment

    book = Workbook()
    sheet = book.worksheets[0]
    sheet.freeze_panes = "A2"
    for row in rows:
        sheet.append([clean(cell) if isinstance(cell, str) else cell for cell in row])
    for cell in chain.from_iterable(sheet.iter_rows()):
        cell.alignment = Alignment(wrap_text=True, vertical="top")
        sheet.column_dimensions[cell.column_letter].width = _WIDTHS.get(columns[cell.column - 1], 16)
    with replaced(out) as part:
        book.save(part)


_COLUMNS = ("completion_id", "rubric", *Label.model_fields, "prompt_digest", "completion_digest", "rubric_digest")
_WIDTHS = {"prompt": 50, "completion": 80, "text": 50, "note": 40}  # characters


@command(verdicts, "list")
def list_verdicts(query: VerdictFilters, as_json: Json = False) -> None:
    """List verdicts."""
    ids = ("id", "completion_id", "rubric_id", "judge_id")
    found = ("verdict.criterion", "verdict.outcome", "verdict.value", "verdict.reason", "verdict.rationale")
    with service() as s:
        show(s.verdicts.page(query), as_json, columns=(*ids, *found), empty="no verdicts")
