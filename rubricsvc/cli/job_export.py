"""`rubricsvc jobs export`: a job's rewards and verdicts as JSON lines, CSV, Parquet or a `datasets` folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rubricsvc.cli.db import database
from rubricsvc.cli.output import Out, counted, echo, open_output, progress_bar, replaced
from rubricsvc.errors import InvalidError
from rubricsvc.services.result_files import ResultFormat
from rubricsvc.store import jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rubricsvc.services.exporting import ResultCounts, Row
    from rubricsvc.services.result_files import Pages
    from rubricsvc.store.session import Database

ENDINGS: dict[str, ResultFormat] = {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet"}


def export(
    job_id: Annotated[int, typer.Argument(help="The job's id.", show_default=False)],
    *,
    format: Annotated[
        ResultFormat | None,
        typer.Option(
            help="Format; `datasets` is a folder for Hugging Face.", show_default="by the ending of --out, else jsonl"
        ),
    ] = None,
    long: Annotated[bool, typer.Option("--long", help="Write a row for each verdict.")] = False,
    pairs: Annotated[bool, typer.Option("--pairs", help="Write preference pairs for TRL.")] = False,
    min_margin: Annotated[float, typer.Option(min=0, help="--pairs: minimum difference of the rewards.")] = 0.0,
    out: Out = None,
) -> None:
    """Write rewards and verdicts with their texts, a row for each completion; or preference pairs."""
    if min_margin and not pairs:
        raise InvalidError("--min-margin needs --pairs", hint="add --pairs, or leave out --min-margin")
    chosen = format or _format_of(out)
    if pairs and (chosen != "jsonl" or long):
        raise InvalidError(
            f"--pairs and {'--long' if long else chosen} exclude each other", hint="pairs are JSON lines of messages"
        )
    with database() as db:
        if pairs:
            _write_pairs(db, job_id, out, min_margin)
        else:
            _write_results(db, job_id, out, chosen, long)


def _format_of(out: Path | None) -> ResultFormat:
    """Return the format that the ending of the file stands for; without a file or an ending, JSON lines.

    Raises:
        InvalidError: no format has this ending.
    """
    ending = out.suffix.lower() if out else ""
    if ending and ending not in ENDINGS:
        hint = f"use one of {', '.join(ENDINGS)}, or choose the format with --format"
        raise InvalidError(f"unknown ending {ending!r} of --out {out}", hint=hint, path="out")
    return ENDINGS.get(ending, "jsonl")


def _with_progress(db: Database, job_id: int, pages: Pages, counts: ResultCounts) -> Iterator[list[Row]]:
    with db.read() as session:
        total = jobs.progress(session, job_id).total
    with progress_bar("exporting") as bar:
        for page in pages:
            bar.update(counts.items, total, "")
            yield page


def _write_pairs(db: Database, job_id: int, out: Path | None, min_margin: float) -> None:
    from rubricsvc.services.exporting import export_pairs

    with open_output(out) as stream:
        found = export_pairs(db, job_id, stream, min_margin=min_margin)
    left_out = f"{found.close} ties or closer than --min-margin, {found.same} same texts"
    echo(f"{found.written} pairs of completions with rewards under one rubric; left out: {left_out}")


def _write_results(db: Database, job_id: int, out: Path | None, chosen: ResultFormat, long: bool) -> None:
    from rubricsvc.services import result_files
    from rubricsvc.services.exporting import ResultCounts, result_pages

    counts = ResultCounts()
    pages = result_pages(db, job_id, counts, long=long)
    if out is not None:
        pages = _with_progress(db, job_id, pages, counts)
    if chosen in ("jsonl", "csv"):
        with open_output(out) as stream:
            if chosen == "csv":
                result_files.write_csv(pages, stream, long=long)
            else:
                result_files.write_json_lines(pages, stream)
    elif out is None:
        what = "a file" if chosen == "parquet" else "a folder"
        raise InvalidError(f"{chosen} is written to {what}", hint="name it with --out")
    else:
        with replaced(out, folder=chosen == "datasets") as part:
            if chosen == "parquet":
                result_files.write_parquet(pages, part, long=long)
            else:
                result_files.write_dataset(pages, part, long=long, title=f"Job {job_id}")
    echo(f"{counted(counts.rows, 'row')} of {counted(counts.items, 'completion')}")
    if counts.without_reward:
        echo(f"{counted(counts.without_reward, 'completion')} without a reward; null_reason and the verdicts say why")
    if long and counts.without_verdict:
        echo(f"{counted(counts.without_verdict, 'completion')} without a verdict, and so without a row")
