"""`rubricsvc jobs`: completions to score, rubrics to generate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from rubricsvc.cli import output
from rubricsvc.cli.db import database
from rubricsvc.cli.failure_hints import lasting_hints, split
from rubricsvc.cli.importing import SkipInvalid, import_into, input_file, report
from rubricsvc.cli.job_comparison import compare
from rubricsvc.cli.job_export import export
from rubricsvc.cli.job_views import item_row, list_row, print_job, read_extremes, read_job
from rubricsvc.cli.job_waiting import end, wait_for
from rubricsvc.cli.output import MOST_ROWS, After, Json, Limit, MinCoverage, counted, echo, first_names, show_page
from rubricsvc.core.states import ItemSort, JobStatus
from rubricsvc.errors import NotApprovedError
from rubricsvc.services import submitting
from rubricsvc.services.importing import COMPLETIONS, RECORDS
from rubricsvc.store import items, jobs
from rubricsvc.store.session import PUBLISHED

app = output.group("Jobs: completions to score, rubrics to generate.")

Id = Annotated[int, typer.Argument(help="The job's id.", show_default=False)]
Budget = Annotated[float | None, typer.Option(min=0, help="Maximum cost in US dollars.", show_default="unlimited")]
AllowDrafts = Annotated[bool, typer.Option("--allow-drafts", help="Use rubrics that are not approved.")]
Wait = Annotated[bool, typer.Option("--wait", help="Run the job now and wait for its end.")]


@app.command()
def submit(
    file: Annotated[str | None, typer.Argument(help="File to score; - is stdin.", show_default="all stored")] = None,
    *,
    judge: Annotated[str, typer.Option(help="Judge: name or id.")],
    rubric: Annotated[str | None, typer.Option(help="Rubric: id or name.", show_default="those of each prompt")] = None,
    policy: Annotated[str | None, typer.Option(help="Filter by policy.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, max=MOST_ROWS, help="Maximum number of completions.")] = None,
    format: Annotated[str | None, typer.Option(help="Format of the file.", show_default="detected")] = None,
    skip_invalid: SkipInvalid = False,
    key: Annotated[str | None, typer.Option(help="Idempotency key; the same key gives the same job.")] = None,
    name: Annotated[str, typer.Option(help="Name of the job.")] = "",
    budget: Budget = None,
    min_coverage: MinCoverage = None,
    allow_drafts: AllowDrafts = False,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Submit completions for scoring: all stored ones, or those of a file.

    Submitting the same judge, completions, rubrics and --min-coverage again gives the same job; the budget must be the
    same too.
    """
    with database() as db:
        source, imported = input_file(file) if file is not None else None, None
        with db.write() as session:
            if source is not None:
                kinds = (RECORDS, COMPLETIONS)
                imported = import_into(session, source, format, kinds=kinds, skip_invalid=skip_invalid)
            selection: dict[str, Any] = {"rubric": rubric, "policy": policy, "limit": limit}
            options: dict[str, Any] = {"key": key, "name": name, "budget": budget, "min_coverage": min_coverage}
            with _import_hint(file):
                submission = submitting.submit(
                    session, judge, imported, allow_drafts=allow_drafts, **options, **selection
                )
        job_id = submission.job_id
        if imported is not None:
            report(imported)
        if submission.no_rubric:
            why = f"rubric {rubric!r} is for another prompt" if rubric else "no approved rubric of their prompt"
            echo(f"left out {counted(submission.no_rubric, 'completion')}: {why}")
        if submission.drafts:
            echo(f"not approved: {first_names(submission.drafts)}; use such rubrics with --allow-drafts")
        if submission.warning:
            echo(f"warning: {submission.warning}")
        if not submission.is_new:
            echo(f"job {job_id} exists already; nothing is submitted")
        end(db, job_id, wait, as_json)


@app.command("list")
def list_(
    *,
    status: Annotated[JobStatus | None, typer.Option(help="Filter by status.")] = None,
    limit: Limit = 50,
    after: After = 0,
    as_json: Json = False,
) -> None:
    """List jobs."""
    with database() as db, db.read() as session:
        rows = jobs.page(session, after=after, limit=limit + 1, status=status)
        outcomes = jobs.outcomes(session, [row.id for row in rows])
        empty = "no jobs; submit one with `rubricsvc jobs submit --judge NAME`"
        show_page(rows, lambda job: list_row(job, outcomes[job.id], as_json), limit, as_json, empty=empty)


@app.command("show")
def show_(
    job_id: Id,
    *,
    worst: Annotated[int, typer.Option(min=0, max=1000, help="Number of worst completions to show.")] = 0,
    best: Annotated[int, typer.Option(min=0, max=1000, help="Number of best completions to show.")] = 0,
    as_json: Json = False,
) -> None:
    """Show one job with its progress and results; its worst and best completions, and their criteria by gain.

    The gain is how much the reward would rise if that criterion alone were met (a pitfall: not met), before veto and
    clip.
    """
    with database() as db:
        job = read_job(db, job_id)
        extremes = read_extremes(db, job_id, worst=worst, best=best) if worst or best else {}
    if as_json:
        records = {name: [one.record() for one in value] for name, value in extremes.items() if name != "null_reasons"}
        job.data.update(extremes | records)
    print_job(job, as_json, {} if as_json else extremes)


@app.command("report")
def report_(
    job_id: Id,
    *,
    completions: Annotated[
        int, typer.Option(min=0, max=1000, help="Number of completions in each list: worst, best, without a reward.")
    ] = 10,
    out: Annotated[Path | None, typer.Option(help="HTML file.", show_default="stdout")] = None,
) -> None:
    """Write a report of a job as one HTML page: rewards, criteria, the worst and the best completions.

    The page holds everything in itself, needs no script and loads nothing.
    """
    from rubricsvc.services.job_results import read_results
    from rubricsvc.web.jobs import render_job

    with database() as db, output.progress_bar("report") as bar:
        results = read_results(db, job_id, extremes=completions, on_progress=bar.update)
    with output.open_output(out) as stream:
        stream.write(render_job(results))


@app.command("items")
def items_(
    job_id: Id,
    *,
    sort: Annotated[ItemSort, typer.Option(help="Order; items without a reward are last.")] = "id",
    policy: Annotated[str | None, typer.Option(help="Filter by policy.")] = None,
    limit: Limit = 50,
    after: Annotated[int, typer.Option(min=0, help="List only rows after this one.")] = 0,
    as_json: Json = False,
) -> None:
    """List the items of a job: a completion, its rubric and its reward."""
    with database() as db, db.read() as session:
        jobs.get(session, job_id)
        rows = items.page(session, job_id, sort=sort, after=after, limit=limit + 1, policy=policy)
        show_page(rows, lambda row: item_row(row, as_json), limit, as_json, empty="no items")


@app.command()
def wait(job_id: Id, as_json: Json = False) -> None:
    """Wait for a job; score it here if no worker can receive it."""
    with database() as db:
        wait_for(db, job_id, as_json)


@app.command()
def cancel(job_id: Id, as_json: Json = False) -> None:
    """Stop a job; its results so far stay."""
    with database() as db:
        with db.write() as session:
            jobs.cancel(session, job_id)
        print_job(read_job(db, job_id), as_json)


@app.command()
def rescore(
    job_id: Id,
    *,
    rubric: Annotated[list[str] | None, typer.Option(help="name@version; repeatable.", show_default="newest")] = None,
    budget: Budget = None,
    min_coverage: MinCoverage = None,
    allow_drafts: AllowDrafts = False,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Score a job's completions under the newest approved version of its rubrics, as a new job.

    Stored verdicts are reused: after a change of weights or of --min-coverage no judge is asked.
    """
    from workers.queue.work import complete_answered

    with database() as db:
        with db.read() as session:
            jobs.get(session, job_id).judge.value  # noqa: B018 - an invalid judge raises before a job is stored
        with db.write() as session:
            options: dict[str, Any] = {"budget": budget, "min_coverage": min_coverage, "allow_drafts": allow_drafts}
            new_id = jobs.rescore(session, job_id, rubric=rubric or (), **options).id
            exists = PUBLISHED not in session.info
            copied = jobs.progress(session, new_id)  # of a new job: where only --min-coverage is another
        if new_id == job_id:
            why = f"used {', '.join(rubric)} already" if rubric else "has the newest version of each rubric"
            echo(f"job {job_id} {why}{' and this min_coverage' * (min_coverage is not None)}; it is the same job")
        elif exists:
            echo(f"job {job_id} is rescored already, as job {new_id}")
        done = complete_answered(db, new_id)
        completed, stored = done.completed, done.stored
        if not exists:
            completed, stored = completed + copied.finished, stored + copied.total_verdicts
        verdicts = f"{counted(stored, 'verdict')} stored before, {done.to_ask} to ask"
        echo(f"{counted(completed, 'completion')} rescored without asking; {verdicts}")
        end(db, new_id, wait, as_json)


@app.command()
def retry(job_id: Id, *, budget: Budget = None, wait: Wait = False, as_json: Json = False) -> None:
    """Score again what failed or was cancelled. A new budget includes what is spent already."""
    with database() as db:
        with db.read() as session:
            _, lasting = split(jobs.summary(session, job_id).reasons, jobs.get(session, job_id).judge.value)
        with db.write() as session:
            reopened = jobs.retry(session, job_id, budget=budget)
        echo(f"{counted(reopened, 'completion')} to score again")
        for hint in lasting_hints(lasting, job_id):
            echo(f"warning: {hint}")
        end(db, job_id, wait, as_json)


app.command()(compare)
app.command()(export)


@contextmanager
def _import_hint(file: str | None) -> Iterator[None]:
    """Name the file in the hint of a rubric that is not approved: nothing of the file is imported then."""
    try:
        yield
    except NotApprovedError as error:
        if file is not None:
            first = f"import the file first (`rubricsvc rubrics import {file}`)"
            error.hint = f"use --allow-drafts, or {first}; then {error.hint}"
        raise
