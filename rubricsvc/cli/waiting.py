"""Waiting for a job at the terminal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import NoReturn

import typer

from rubricsvc import telemetry
from rubricsvc.cli.embedded import fetch_if_embedded
from rubricsvc.cli.output import INTERRUPTED, OK, WITH_FAILURES, echo, ignore_broken_pipe, progress_bar, show
from rubricsvc.core.judge import Judge
from rubricsvc.errors import UnavailableError
from rubricsvc.services.job_reports import JobReport, read_job
from rubricsvc.settings import get_settings
from rubricsvc.store.session import Database
from workers.engines import make_engine


def print_job(report: JobReport, as_json: bool) -> None:
    """Print one job, and its hints to stderr."""
    show(report.data if as_json else report.data | {"voting": report.voting}, as_json)
    for hint in report.hints:
        echo(f"hint: {hint}")


def wait(db: Database, job_id: int, as_json: bool, *, score: bool = True) -> NoReturn:
    """Show a job's progress until it has ended, then the job; exit 1 unless it completed.

    With ``score``, a worker runs here if the broker stays in this process.
    """
    from rubricsvc.services.waiting import ensure_worker, follow, retry_database

    started, first = time.monotonic(), None
    with _continue_hint(job_id), ExitStack() as stack:
        if score:
            stack.enter_context(ensure_worker(db, job_id, partial(_start_worker, db), echo))
            stack.enter_context(_continue_hint(job_id))  # printed before the worker stops, which may take a while
        bar = stack.enter_context(progress_bar(f"job {job_id}"))
        for now in follow(db, job_id, echo):
            first = now.verdicts if first is None else first
            speed = (now.verdicts - first) / max(time.monotonic() - started, 0.1)
            failures = f", {now.failed_verdicts} failed" if now.failed_verdicts else ""
            bar.update(now.finished, now.total, f"{now.verdicts} verdicts{failures}, {speed:.1f}/s")
    with _continue_hint(job_id):
        report = retry_database(lambda: read_job(db, job_id), echo)
    report.data["waited_seconds"] = round(time.monotonic() - started, 2)
    with ignore_broken_pipe():
        print_job(report, as_json)
    raise typer.Exit(OK if report.data["status"] == "completed" else WITH_FAILURES)


@contextmanager
def _continue_hint(job_id: int) -> Iterator[None]:
    """Print how to continue after an interrupt; add it to the error of an unreachable database."""
    hint = f"results so far are stored. Continue with: rubricsvc jobs wait {job_id}"
    try:
        yield
    except KeyboardInterrupt:
        echo(f"\ninterrupted; {hint}")
        raise typer.Exit(INTERRUPTED) from None
    except UnavailableError as error:
        raise UnavailableError(error.message, hint=error.hint or hint) from error


def _start_worker(db: Database, judge: Judge) -> AbstractContextManager[None]:
    """Start a worker in this process, once the judge's engine could be made: its errors belong to the terminal."""
    from workers.queue.in_process import embedded_worker

    fetch_if_embedded(judge)
    asyncio.run(make_engine(judge).aclose())
    telemetry.configure("WARNING", human=True)
    return embedded_worker(get_settings(), db)
