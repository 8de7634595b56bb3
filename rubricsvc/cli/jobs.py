"""`rubricsvc jobs`: batches of completions to be scored."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli.database import database
from rubricsvc.cli.output import MOST_ROWS, After, Json, Limit, echo, group, show, show_page
from rubricsvc.core.states import JobStatus
from rubricsvc.errors import InvalidError
from rubricsvc.services.importing import Imported, Importer, Language, SkipInvalid, options_of, source_of

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.store.jobs import Progress, Summary
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import JobRow

app = group("Jobs: batches of completions to be scored.")

Id = Annotated[int, typer.Argument(help="The job's id.", show_default=False)]
Budget = Annotated[
    float | None, typer.Option(min=0, help="Stop before its judge has cost more US dollars.", show_default="no cap")
]


@app.command()
def submit(
    file: Annotated[
        str | None, typer.Argument(help="Import this file first, and score what it holds; - is stdin.")
    ] = None,
    *,
    judge: Annotated[str, typer.Option(help="The judge's name or id.")],
    rubric: Annotated[str | None, typer.Option(help="This rubric; else the ones of each prompt.")] = None,
    policy: Annotated[str | None, typer.Option(help="Only completions of this policy.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, max=MOST_ROWS, help="At most so many completions.")] = None,
    format: Annotated[str | None, typer.Option(help="Of the file; without it the file is looked at.")] = None,
    skip_invalid: SkipInvalid = False,
    language: Language = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key: the same one gives the same job.")] = None,
    name: Annotated[str, typer.Option(help="What to call the job.")] = "",
    budget: Budget = None,
    wait: Annotated[bool, typer.Option("--wait", help="Score it now, and wait.")] = False,
    as_json: Json = False,
) -> None:
    """Have completions scored, all that are there or a file's.

    The same judge, completions and rubrics are the same job, however often they are submitted.
    """
    from rubricsvc.services.selecting import select, warn_of_vetoes
    from rubricsvc.services.waiting import ends_with, score_here_or_watch
    from rubricsvc.store import jobs, judges, rubrics
    from rubricsvc.store.session import RANG

    with database() as db:
        with db.write() as session:
            judged_by = judges.get(session, judge)
            imported = None
            if file is not None:
                imported = _import(session, file, format, skip_invalid=skip_invalid, language=language)
            pairs = select(session, imported, rubric=rubric, policy=policy, limit=limit)
            if judged_by.value.mode == "comparative":
                warn_of_vetoes(judged_by.value, rubrics.judged_required(session, (rubric_id for _, rubric_id in pairs)))
            job = jobs.submit(session, judge_id=judged_by.id, items=pairs, key=key, name=name, budget=budget)
            job_id, is_new = job.id, RANG in session.info  # only a new job rings
        if not is_new:
            echo(f"job {job_id} is this job already; `rubricsvc jobs retry {job_id}` redoes what failed in it")
        if wait:
            ends_with(score_here_or_watch(db, job_id), as_json)
        _say_who_scores(db, job_id)
        show(_one(db, job_id), as_json)


def _import(session: Session, file: str, format: str | None, *, skip_invalid: bool, language: str | None) -> Imported:
    with source_of(file) as source:
        importer = Importer(session, skip_invalid=skip_invalid)
        imported = importer.read(source, format, rubrics_too=True, **options_of(language))
    imported.tell()
    return imported


def _say_who_scores(db: Database, job_id: int) -> None:
    if db.after_ring is None:  # memory://, and no worker in this process
        echo(f"nobody scores it yet: `rubricsvc jobs wait {job_id}` does, and so does `rubricsvc serve`")


def row_of(job: JobRow) -> dict[str, Any]:
    """A job in a list."""
    return {
        "id": job.id,
        "name": job.name,
        "judge": job.judge.name,
        "judge_calibrated": job.judge.value.calibrated,
        "status": job.status,
        "created_at": job.created_at.isoformat(timespec="seconds"),
        "finished_at": job.finished_at.isoformat(timespec="seconds") if job.finished_at else None,
    }


def _one(db: Database, job_id: int) -> dict[str, Any]:
    from rubricsvc.store import jobs

    with db.read() as session:
        return _told(jobs.get(session, job_id), jobs.progress(session, job_id), jobs.summary(session, job_id))


def _told(job: JobRow, progress: Progress, summary: Summary) -> dict[str, Any]:
    shown = row_of(job) | {"progress": progress.as_dict()}
    if job.judge.value.priced:
        shown |= {"spent_usd": round(job.spent, 6), "budget_usd": job.budget}
    if job.budget is not None:
        held, lost = summary.reserved.held, summary.reserved.lost
        shown |= {"reserved_usd": round(held, 6), "lost_usd": round(lost, 6)}
    names = ("rewards", "mean_reward", "reasons", "vetoed", "cached_share", "voting")
    return shown | {name: getattr(summary, name) for name in names}


@app.command("list")
def list_(
    *,
    status: Annotated[JobStatus | None, typer.Option(help="Only those that stand so.")] = None,
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
            empty="no jobs; `rubricsvc jobs submit --judge NAME` makes one",
        )


@app.command("show")
def show_(job_id: Id, as_json: Json = False) -> None:
    """Show one job and where it stands."""
    from rubricsvc.cli.hints import hints, in_words
    from rubricsvc.store import jobs

    with database() as db, db.read() as session:
        job, progress, summary = (
            jobs.get(session, job_id),
            jobs.progress(session, job_id),
            jobs.summary(session, job_id),
        )
        shown = _told(job, progress, summary)
        show(shown if as_json else shown | {"voting": in_words(summary.voting, job.judge.value)}, as_json)
        for hint in hints(job, progress, summary):
            echo(f"hint: {hint}")


@app.command()
def watch(job_id: Id, as_json: Json = False) -> None:
    """Show a job's progress until it ends; others score it."""
    from rubricsvc.services.waiting import ends_with
    from rubricsvc.services.waiting import watch as watch_job

    with database() as db:
        ends_with(watch_job(db, job_id), as_json)


@app.command()
def wait(job_id: Id, as_json: Json = False) -> None:
    """Wait for a job, and score it here where nobody else does."""
    from rubricsvc.services.waiting import ends_with, score_here_or_watch

    with database() as db:
        ends_with(score_here_or_watch(db, job_id), as_json)


@app.command()
def cancel(job_id: Id, as_json: Json = False) -> None:
    """Stop a job; what was scored stays."""
    from rubricsvc.store import jobs

    with database() as db:
        with db.write() as session:
            jobs.cancel(session, job_id)
        show(_one(db, job_id), as_json)


@app.command()
def retry(
    job_id: Id,
    *,
    budget: Budget = None,
    wait: Annotated[bool, typer.Option("--wait", help="Score it now, and wait.")] = False,
    as_json: Json = False,
) -> None:
    """Score again what failed or was cancelled. A new budget caps all that the job costs, the first time included."""
    from rubricsvc.services.waiting import ends_with, score_here_or_watch
    from rubricsvc.store import jobs

    with database() as db:
        with db.write() as session:
            reopened = jobs.retry(session, job_id, budget=budget)
        echo(f"{reopened} completion{'s' * (reopened != 1)} to be scored again")
        if wait:
            ends_with(score_here_or_watch(db, job_id), as_json)
        if reopened:
            _say_who_scores(db, job_id)
        show(_one(db, job_id), as_json)


@app.command()
def export(
    job_id: Id,
    *,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV, without the verdicts' texts, instead of JSONL.")] = False,
    pairs: Annotated[
        bool,
        typer.Option("--pairs", help="A line for each two completions of a prompt: prompt, chosen, rejected (TRL's)."),
    ] = False,
    min_margin: Annotated[float, typer.Option(min=0, help="--pairs: rewards at least so far apart; no ties.")] = 0.0,
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of stdout.")] = None,
) -> None:
    """Write rewards and verdicts, a line for each completion; or preference pairs."""
    from rubricsvc.cli.output import open_output
    from rubricsvc.cli.pairs import export_pairs
    from rubricsvc.services.exporting import export_job

    if pairs and as_csv:
        raise InvalidError("--pairs and --csv exclude each other", hint="pairs hold messages, and are JSONL")
    if min_margin and not pairs:
        raise InvalidError("--min-margin is for --pairs", hint="give both")
    with database() as db, open_output(out) as stream:
        if pairs:
            echo(str(export_pairs(db, job_id, stream, min_margin=min_margin)))
            return
        bare = export_job(db, job_id, stream, as_csv=as_csv)
    if bare:
        echo(f"{bare} of these have no reward; null_reason and the verdicts say why")
