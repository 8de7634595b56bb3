"""The end of the commands that submit a job: they wait for it, or say how it will be worked on, and print it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import NoReturn

import typer

from rubricsvc.cli import output
from rubricsvc.cli.job_views import print_job, read_job
from rubricsvc.cli.models import fetch_if_embedded
from rubricsvc.cli.output import counted, echo
from rubricsvc.core.judge import Judge
from rubricsvc.errors import UnavailableError
from rubricsvc.schemas import StoredJob
from rubricsvc.schemas.waiting import no_worker
from rubricsvc.settings import get_settings
from rubricsvc.store.session import Database
from workers.engines import make_engine


def end(db: Database, job_id: int, wait: bool, as_json: bool) -> None:
    """Print a job; wait for it first, or say how it will be scored."""
    from rubricsvc.services.jobs import Jobs

    if wait:
        wait_for(db, job_id, as_json)
    if Jobs(db).get(job_id).workers == 0:
        echo(no_worker(job_id))
    print_job(read_job(db, job_id), as_json)


def wait_for(db: Database, job_id: int, as_json: bool) -> NoReturn:
    """Show a job's progress until it has ended, then the job; exit 1 unless it completed."""
    from rubricsvc.services.jobs import Jobs
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

    with (
        _continue_hint(job_id),
        ensure_worker(db, job_id, partial(start_worker, db), echo),
        _continue_hint(job_id),  # printed before the worker stops, which may take a while
        output.progress_bar(f"job {job_id}") as bar,
    ):
        Jobs(db).wait(job_id, None, update, echo)
        view = read_job(db, job_id)
    view.data["waited_seconds"] = round(bar.seconds, 2)
    with output.ignore_broken_pipe():
        print_job(view, as_json)
    raise typer.Exit(output.OK if view.data["status"] == "completed" else output.WITH_FAILURES)


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
