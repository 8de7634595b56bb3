"""The end of the commands that submit a job: they wait for it, or say how it will be worked on, and print it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import typer

from rubricsvc.cli import output
from rubricsvc.cli.models import fetch_if_embedded
from rubricsvc.cli.output import counted, echo
from rubricsvc.core.judge import Judge
from rubricsvc.errors import UnavailableError
from rubricsvc.schemas import StoredJob
from rubricsvc.schemas.waiting import no_worker
from rubricsvc.services.local import LocalService
from rubricsvc.settings import get_settings
from rubricsvc.store.session import Database
from workers.engines import make_engine

if TYPE_CHECKING:
    from rubricsvc.client import Client


def end(s: LocalService | Client, job: StoredJob, wait: bool, as_json: bool) -> None:
    """Print a job that was submitted, or exists already; wait for it first, or say how it will be scored."""
    for note in job.notes:
        echo(note)
    if not job.is_new:
        echo(f"job {job.id} exists already; nothing is submitted")
    if wait:
        wait_for(s, job.id, as_json)
    if job.workers == 0:
        echo(no_worker(job.id))
    show_job(s.jobs.get(job.id, summary=True), as_json)


def show_job(job: StoredJob, as_json: bool) -> None:
    """Print one job with its results, and its hints to stderr."""
    if as_json:
        output.show(job, as_json)
    else:
        record = job.model_dump(exclude={"hints", "notes", "is_new", "settings", "summary", "judge_id"})
        if job.summary is not None:
            record |= job.summary.model_dump(exclude={"generation"}) | dict(job.summary.generation or {})
        output.show({name: value for name, value in record.items() if value is not None})
    for hint in job.hints:
        echo(f"hint: {hint}")


def wait_for(s: LocalService | Client, job_id: int, as_json: bool) -> NoReturn:
    """Show a job's progress until it has ended, then the job; exit 1 unless it completed.

    Where no other worker can receive it, a worker of this process scores it.
    """
    from rubricsvc.services.waiting import ensure_worker

    first = None

    def update(job: StoredJob) -> None:
        nonlocal first
        if (now := job.progress) is None:
            return
        generates = job.kind == "generate"
        done = now.finished if generates else now.total_verdicts
        first = done if first is None else first
        speed = (done - first) / max(bar.seconds, 0.1)
        good, bad = (now.done, now.failed) if generates else (now.verdicts, now.failed_verdicts)
        failures = f", {bad} failed" if bad else ""
        noun = "rubric" if generates else "verdict"
        bar.update(now.finished, now.total, f"{counted(good, noun)}{failures}, {speed:.1f}/s")

    with ExitStack() as stack:
        stack.enter_context(_continue_hint(job_id))
        if isinstance(s, LocalService):
            stack.enter_context(ensure_worker(s.db, job_id, partial(start_worker, s.db), echo))
        stack.enter_context(_continue_hint(job_id))  # printed before the worker stops, which may take a while
        bar = stack.enter_context(output.progress_bar(f"job {job_id}"))
        job = s.jobs.wait(job_id, None, update, echo)
    with output.ignore_broken_pipe():
        show_job(job, as_json)
    raise typer.Exit(output.OK if job.status == "completed" else output.WITH_FAILURES)


@contextmanager
def job_scorer(db: Database, on_progress: Callable[[str], None]) -> Iterator[Callable[[int], None]]:
    """Yield a function that waits for a job; a worker of this process, if one is needed, runs until the block ends."""
    from rubricsvc.services.jobs import Jobs
    from rubricsvc.services.waiting import ensure_worker

    def update(job: StoredJob) -> None:
        if (now := job.progress) is not None:
            on_progress(f"job {job.id}: {now.finished} of {counted(now.total, 'completion')}")

    with ExitStack() as stack:

        def wait(job_id: int) -> None:
            stack.enter_context(ensure_worker(db, job_id, partial(start_worker, db), echo))
            Jobs(db).wait(job_id, None, update, echo)

        yield wait


@contextmanager
def _continue_hint(job_id: int) -> Iterator[None]:
    """Print how to continue after an interrupt; add it to the error of an unreachable database."""
    hint = f"results so far are stored. Continue with: rubricsvc jobs wait {job_id}"
    try:
        yield
    except KeyboardInterrupt:
        echo(f"\ninterrupted; {hint}")
        raise typer.Exit(output.INTERRUPTED) from None
    except UnavailableError as error:
        raise UnavailableError(error.message, hint=error.hint or hint) from error


def start_worker(db: Database, judge: Judge, *, keep_models: bool = False) -> AbstractContextManager[None]:
    """Start a worker in this process, once the judge's engine could be made: its errors belong to the terminal."""
    from workers.queue.in_process import embedded_worker

    check_engine(judge)
    return embedded_worker(get_settings(), db, keep_models=keep_models)


def check_engine(judge: Judge) -> None:
    """Make a judge's engine and close it, so that its errors are raised before a worker needs it."""
    fetch_if_embedded(judge)
    asyncio.run(make_engine(judge).aclose())
