"""`rubricsvc jobs export`: a job's rewards and verdicts, or examples for trainers.

As JSON lines, CSV, Parquet or a `datasets` folder.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from rubricsvc.cli.db import database
from rubricsvc.cli.output import Out, cell, counted, echo, open_output, progress_bar, replaced
from rubricsvc.errors import InvalidError
from rubricsvc.services.result_files import ResultFormat, RowKind
from rubricsvc.store import jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rubricsvc.services.exporting import ResultCounts, Row
    from rubricsvc.services.result_files import Pages
    from rubricsvc.store.session import Database

ENDINGS: dict[str, ResultFormat] = {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet"}
_OPTIONS = {
    "--top": ("--sft",),
    "--min-margin": ("--pairs", "--dpo"),
    "--noise": ("--dpo", "--kto"),
    "--threshold": ("--kto",),
}
"""Options, and what of that is exported each belongs to."""


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
    pairs: Annotated[bool, typer.Option("--pairs", help="Write all preference pairs for TRL.")] = False,
    dpo: Annotated[
        bool, typer.Option("--dpo", help="Write preference pairs without contradictory and uncertain ones.")
    ] = False,
    sft: Annotated[bool, typer.Option("--sft", help="Write the best completions for TRL's SFT.")] = False,
    kto: Annotated[bool, typer.Option("--kto", help="Write completions with labels for TRL's KTO.")] = False,
    top: Annotated[int | None, typer.Option(min=1, help="Completions of each prompt.", show_default="1")] = None,
    min_margin: Annotated[
        float | None, typer.Option(min=0, help="Minimum difference of the rewards.", show_default="0")
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Standard deviation of a reward if the judge is asked again.",
            show_default="measured by `judges repeatability`",
        ),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Reward of a desirable completion.", show_default="the mean of the prompt")
    ] = None,
    out: Out = None,
) -> None:
    """Write rewards and verdicts with their texts, a row for each completion; or examples for TRL's trainers."""
    kinds = {"--long": long, "--pairs": pairs, "--dpo": dpo, "--sft": sft, "--kto": kto}
    given = {"--top": top, "--min-margin": min_margin, "--noise": noise, "--threshold": threshold}
    chosen = [name for name, is_set in kinds.items() if is_set]
    _check(chosen, [name for name, value in given.items() if value is not None])
    if threshold is not None and not math.isfinite(threshold):
        raise InvalidError(f"--threshold is {threshold}", hint="name a reward, such as 0.5", path="threshold")
    written = format or _format_of(out)
    if chosen in ([], ["--long"]):
        with database() as db:
            _write_results(db, job_id, out, written, long)
        return
    if written == "csv":
        raise InvalidError(f"{chosen[0]} and csv exclude each other", hint="messages are no cells: choose jsonl")
    options = {name.lstrip("-").replace("-", "_"): value for name, value in given.items() if value is not None}
    with database() as db:
        _write_examples(db, job_id, out, written, {"kind": chosen[0][2:], **options})


def _check(chosen: list[str], given: list[str]) -> None:
    """Raise an InvalidError if options exclude each other."""
    if len(chosen) > 1:
        raise InvalidError(f"{chosen[0]} and {chosen[1]} exclude each other", hint="leave out one of them")
    for name in given:
        if not set(chosen) & set(_OPTIONS[name]):
            needed = " or ".join(_OPTIONS[name])
            raise InvalidError(f"{name} needs {needed}", hint=f"add {needed}, or leave out {name}")


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


def _write_examples(
    db: Database, job_id: int, out: Path | None, written: ResultFormat, options: dict[str, Any]
) -> None:
    from rubricsvc.services.training_examples import ExampleCounts, ExampleRules, example_pages, judge_noise

    rules, counts = ExampleRules(**options), ExampleCounts()
    _write(example_pages(db, job_id, rules, counts), out, written, cast("RowKind", rules.kind), f"Job {job_id}")
    left_out = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.left_out.items() if count)
    noun = "pair" if rules.kind in ("dpo", "pairs") else "example"
    echo(f"{counted(counts.written, noun)} of scored completions; left out: {left_out or 'none'}")
    if rules.kind in ("dpo", "kto"):
        with db.read() as session:
            job = jobs.scoring(session, job_id)
            noise, name = judge_noise(job) if rules.noise is None else rules.noise, job.judge.name
        if noise:
            echo(f"uncertain: within the judge's noise, standard deviation {cell(noise)} of a reward, at 95 %")
        elif rules.noise is None:
            echo(f"nothing counts as uncertain: measure the noise with `rubricsvc judges repeatability {name}`")


def _write_results(db: Database, job_id: int, out: Path | None, written: ResultFormat, long: bool) -> None:
    from rubricsvc.services import result_files
    from rubricsvc.services.exporting import ResultCounts, result_pages

    counts = ResultCounts()
    pages = result_pages(db, job_id, counts, long=long)
    if out is not None:
        pages = _with_progress(db, job_id, pages, counts)
    if written == "csv":
        with open_output(out) as stream:
            result_files.write_csv(pages, stream, long=long)
    else:
        _write(pages, out, written, "verdict" if long else "completion", f"Job {job_id}")
    echo(f"{counted(counts.rows, 'row')} of {counted(counts.items, 'completion')}")
    if counts.without_reward:
        echo(f"{counted(counts.without_reward, 'completion')} without a reward; null_reason and the verdicts say why")
    if long and counts.without_verdict:
        echo(f"{counted(counts.without_verdict, 'completion')} without a verdict, and so without a row")


def _write(pages: Pages, out: Path | None, written: ResultFormat, kind: RowKind, title: str) -> None:
    from rubricsvc.services import result_files

    if written == "jsonl":
        with open_output(out) as stream:
            result_files.write_json_lines(pages, stream)
    elif out is None:
        what = "a file" if written == "parquet" else "a folder"
        raise InvalidError(f"{written} is written to {what}", hint="name it with --out")
    else:
        with replaced(out, folder=written == "datasets") as part:
            if written == "parquet":
                result_files.write_parquet(pages, part, kind=kind)
            else:
                result_files.write_dataset(pages, part, kind=kind, title=title)
