"""`rubricsvc jobs`: batches of completions to score."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli.database import database
from rubricsvc.cli.importing import Language, SkipInvalid, input_file, options_of, report
from rubricsvc.cli.output import MOST_ROWS, After, Json, Limit, echo, group, show, show_page
from rubricsvc.core.states import JobStatus
from rubricsvc.errors import InvalidError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.services.importing import ImportResult
    from rubricsvc.services.pairs import PairCounts
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import JobRow

app = group("Jobs: batches of completions to score.")

Id = Annotated[int, typer.Argument(help="The job's id.", show_default=False)]
Budget = Annotated[float | None, typer.Option(min=0, help="Maximum cost in US dollars.", show_default="unlimited")]
Wait = Annotated[bool, typer.Option("--wait", help="Score now and wait for the end.")]


@app.command()
def submit(
    file: Annotated[
        str | None, typer.Argument(help="File to import and score; - is stdin.", show_default="all completions")
    ] = None,
    *,
    judge: Annotated[str, typer.Option(help="Judge: name or id.")],
    rubric: Annotated[str | None, typer.Option(help="Rubric: id or name.", show_default="those of each prompt")] = None,
    policy: Annotated[str | None, typer.Option(help="Filter by policy.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, max=MOST_ROWS, help="Maximum number of completions.")] = None,
    format: Annotated[str | None, typer.Option(help="Format of the file.", show_default="detected")] = None,
    skip_invalid: SkipInvalid = False,
    language: Language = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key; the same key gives the same job.")] = None,
    name: Annotated[str, typer.Option(help="Name of the job.")] = "",
    budget: Budget = None,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Submit completions for scoring: all stored ones, or those of a file.

    Submitting the same judge, completions and rubrics again gives the same job.
    """
    from rubricsvc.cli import waiting
    from rubricsvc.services.selecting import select, veto_warning
    from rubricsvc.store import jobs, judges, rubrics
    from rubricsvc.store.session import RANG

    with database() as db:
        with db.write() as session:
            judged_by = judges.get(session, judge)
            imported = None
            if file is not None:
                imported = _import(session, file, format, skip_invalid=skip_invalid, language=language)
            selection = select(session, imported, rubric=rubric, policy=policy, limit=limit)
            if selection.no_rubric:
                echo(f"{selection.no_rubric} completions left out: no rubric{' of this prompt' if rubric else ''}")
            pairs = selection.pairs
            if judged_by.value.mode == "comparative":
                required = rubrics.judged_required(session, (rubric_id for _, rubric_id in pairs))
                if warning := veto_warning(judged_by.value, required):
                    echo(f"warning: {warning}")
            job = jobs.submit(session, judge_id=judged_by.id, items=pairs, key=key, name=name, budget=budget)
            job_id, is_new = job.id, RANG in session.info  # only a new job rings
        if not is_new:
            echo(f"job {job_id} exists already; score again what failed with `rubricsvc jobs retry {job_id}`")
        if wait:
            waiting.wait(db, job_id, as_json)
        _warn_no_worker(db, job_id)
        print_job(job_record(db, job_id), as_json)


def _import(
    session: Session, file: str, format: str | None, *, skip_invalid: bool, language: str | None
) -> ImportResult:
    from rubricsvc.services.importing import COMPLETIONS, RECORDS, import_file
    from workers import checks

    result = import_file(
        session,
        input_file(file),
        format,
        kinds=(RECORDS, COMPLETIONS),
        skip_invalid=skip_invalid,
        check=checks.validate,
        options=options_of(language),
    )
    report(result)
    return result


def _warn_no_worker(db: Database, job_id: int) -> None:
    if db.after_ring is None:  # the broker is memory://, and no worker runs in this process
        echo(f"No worker is running. Start one with `rubricsvc serve`, or score here: `rubricsvc jobs wait {job_id}`.")


def row_of(job: JobRow) -> dict[str, Any]:
    """Return a job's fields in a list."""
    return {
        "id": job.id,
        "name": job.name,
        "judge": job.judge.name,
        "judge_calibrated": job.judge.value.calibrated,
        "status": job.status,
        "created_at": job.created_at.isoformat(timespec="seconds"),
        "finished_at": job.finished_at.isoformat(timespec="seconds") if job.finished_at else None,
    }


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job: its ``data`` for JSON, ``voting`` for people, and ``hints``."""

    data: dict[str, Any]
    voting: dict[str, Any]
    hints: tuple[str, ...]


def job_record(db: Database, job_id: int) -> JobRecord:
    """Read one job with its progress and its results so far."""
    from rubricsvc.services.job_hints import describe_voting, hints
    from rubricsvc.store import jobs

    with db.read() as session:
        job = jobs.get(session, job_id)
        progress, summary = jobs.progress(session, job_id), jobs.summary(session, job_id)
        data = row_of(job) | {"progress": progress.as_dict()}
        if job.judge.value.priced:
            data |= {"spent_usd": round(job.spent, 6), "budget_usd": job.budget}
        if job.budget is not None:
            held, lost = summary.reserved.held, summary.reserved.lost
            data |= {"reserved_usd": round(held, 6), "lost_usd": round(lost, 6)}
        names = ("rewards", "mean_reward", "reasons", "vetoed", "cached_share", "voting")
        data |= {name: getattr(summary, name) for name in names}
        voting = describe_voting(summary.voting, job.judge.value)
        return JobRecord(data, voting, tuple(hints(job, progress, summary)))


def print_job(record: JobRecord, as_json: bool) -> None:
    """Print one job, and its hints to stderr."""
    show(record.data if as_json else record.data | {"voting": record.voting}, as_json)
    for hint in record.hints:
        echo(f"hint: {hint}")


@app.command("list")
def list_(
    *,
    status: Annotated[JobStatus | None, typer.Option(help="Filter by status.")] = None,
    limit: Limit = 50,
    after: After = 0,
    as_json: Json = False,
) -> None:
    """List jobs."""
    from rubricsvc.store import jobs

    with database() as db, db.read() as session:
        show_page(
            lambda n: jobs.page(session, after=after, limit=n, status=status),
            row_of,
            limit,
            as_json,
            empty="no jobs; submit one with `rubricsvc jobs submit --judge NAME`",
        )


@app.command("show")
def show_(job_id: Id, as_json: Json = False) -> None:
    """Show one job with its progress and results."""
    with database() as db:
        print_job(job_record(db, job_id), as_json)


@app.command()
def watch(job_id: Id, as_json: Json = False) -> None:
    """Show a job's progress until it ends, without scoring."""
    from rubricsvc.cli import waiting

    with database() as db:
        waiting.wait(db, job_id, as_json, score=False)


@app.command()
def wait(job_id: Id, as_json: Json = False) -> None:
    """Wait for a job; score it here if no worker can receive it."""
    from rubricsvc.cli import waiting

    with database() as db:
        waiting.wait(db, job_id, as_json)


@app.command()
def cancel(job_id: Id, as_json: Json = False) -> None:
    """Stop a job; its results so far stay."""
    from rubricsvc.store import jobs

    with database() as db:
        with db.write() as session:
            jobs.cancel(session, job_id)
        print_job(job_record(db, job_id), as_json)


@app.command()
def rescore(
    job_id: Id,
    *,
    rubric: Annotated[
        list[str] | None,
        typer.Option(help="Rubric version, as name@version; repeatable.", show_default="the newest of each"),
    ] = None,
    budget: Budget = None,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Score a job's completions under the newest version of its rubrics, as a new job.

    Stored verdicts are reused: after a change of weights no judge is asked.
    """
    from rubricsvc.cli import waiting
    from rubricsvc.store import jobs
    from workers.queue.rescoring import complete_answered

    with database() as db:
        with db.write() as session:
            new_id = jobs.rescore(session, job_id, versions=rubric or (), budget=budget).id
        if new_id == job_id:
            echo(f"No rubric of job {job_id} has a newer version; it is the same job.")
        completed = complete_answered(db, new_id)
        echo(f"{completed} completion{'s' * (completed != 1)} rescored from stored verdicts")
        if wait:
            waiting.wait(db, new_id, as_json)
        with db.read() as session:
            still_open = jobs.get(session, new_id).finished_at is None
        if still_open:
            _warn_no_worker(db, new_id)
        print_job(job_record(db, new_id), as_json)


@app.command()
def retry(
    job_id: Id,
    *,
    budget: Budget = None,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Score again what failed or was cancelled. A new budget includes what is spent already."""
    from rubricsvc.cli import waiting
    from rubricsvc.store import jobs

    with database() as db:
        with db.write() as session:
            reopened = jobs.retry(session, job_id, budget=budget)
        echo(f"{reopened} completion{'s' * (reopened != 1)} to score again")
        if wait:
            waiting.wait(db, job_id, as_json)
        if reopened:
            _warn_no_worker(db, job_id)
        print_job(job_record(db, job_id), as_json)


@app.command()
def export(
    job_id: Id,
    *,
    as_csv: Annotated[bool, typer.Option("--csv", help="Write CSV without the verdicts' texts.")] = False,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Write preference pairs (prompt, chosen, rejected) for TRL.")
    ] = False,
    min_margin: Annotated[float, typer.Option(min=0, help="--pairs: minimum difference of the rewards.")] = 0.0,
    out: Annotated[Path | None, typer.Option(help="Output file.", show_default="stdout")] = None,
) -> None:
    """Write rewards and verdicts as JSON lines, one a completion; or preference pairs."""
    from rubricsvc.cli.output import open_output
    from rubricsvc.services.exporting import export_job
    from rubricsvc.services.pairs import export_pairs

    if pairs and as_csv:
        raise InvalidError("--pairs and --csv exclude each other", hint="pairs hold messages: write JSON lines")
    if min_margin and not pairs:
        raise InvalidError("--min-margin needs --pairs", hint="add --pairs, or leave out --min-margin")
    with database() as db, open_output(out) as stream:
        if pairs:
            _report_pairs(export_pairs(db, job_id, stream, min_margin=min_margin))
            return
        without_reward = export_job(db, job_id, stream, as_csv=as_csv)
    if without_reward:
        echo(f"{without_reward} completions have no reward; null_reason and the verdicts say why")


def _report_pairs(counts: PairCounts) -> None:
    if not (counts.written or counts.close or counts.same):
        echo("0 pairs: no prompt has two completions with rewards under one rubric")
        return
    echo(f"{counts.written} pairs; left out: {counts.close} ties or closer than --min-margin, {counts.same} same texts")
