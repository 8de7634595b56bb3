"""Watching a job, and scoring it in this process where no other worker can be told of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any, NoReturn, TypeVar

import typer

from rubricsvc import telemetry
from rubricsvc.broker import check_broker
from rubricsvc.cli.hints import hints, in_words
from rubricsvc.cli.output import INTERRUPTED, OK, WITH_FAILURES, echo, ignore_broken_pipe, progress_bar, show
from rubricsvc.core.judge import Judge
from rubricsvc.errors import UnavailableError
from rubricsvc.settings import get_settings
from rubricsvc.store import jobs
from rubricsvc.store.jobs import Progress
from rubricsvc.store.session import AWAY, Database

OPEN = ("queued", "in_progress")
LOOK_SECONDS = 0.3
AWAY_SECONDS = 120.0
"""How long a database may be away before we stop asking for it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended; ``worded`` is its ``voting`` for people, and ``hints`` are lines for them.

    ``mean_reward`` is over those that have a reward; ``reasons`` counts failed verdicts,
    ``vetoed`` rewards by the required criterion that took them down.

    ``cached_share`` is the share of the prompts' tokens that the judge's engine had read before, None where it counts
    none. ``voting`` tells of a panel how many independent votes it was worth, and of a cascade what it saved.
    ``spent_usd`` is None where the judge has no price. ``waited_seconds`` is how long this command waited, not how long
    the job took.
    """

    id: int
    status: str
    completions: int
    rewards: int
    mean_reward: float | None
    verdicts: int
    failed_verdicts: int
    reasons: dict[str, int]
    vetoed: dict[str, int]
    cached_share: float | None
    voting: dict[str, float]
    spent_usd: float | None
    waited_seconds: float
    worded: dict[str, Any]
    hints: tuple[str, ...]


def score_here_or_watch(db: Database, job_id: int) -> Ending:
    """Wait for the job. Over ``memory://`` a worker of our own scores it; else the workers that there are do."""
    began = time.monotonic()
    with _told_how_to_go_on(job_id), ExitStack() as stack:
        with db.read() as session:
            job = jobs.get(session, job_id)
            judge, is_open = job.judge.value, job.status in OPEN
        if is_open and db.after_ring is None:
            _see_that_it_can_be_asked(judge)
            stack.enter_context(_worker(db))
        elif is_open:
            _say_where_nobody_hears(job_id)
        return watch(db, job_id, began)


def _see_that_it_can_be_asked(judge: Judge) -> None:
    """A worker would try in vain, and log; here the person at the terminal is told."""
    from rubricsvc.cli.probing import EMBEDDED, fetch_embedded
    from workers.engines import make_engine

    if any(leaf.model == EMBEDDED for leaf in judge.leaf_judges):
        fetch_embedded()
    asyncio.run(make_engine(judge).aclose())


def _worker(db: Database) -> AbstractContextManager[None]:
    from workers.queue.in_process import embedded_worker

    telemetry.configure("WARNING", human=True)
    return embedded_worker(get_settings(), db)


def _say_where_nobody_hears(job_id: int) -> None:
    try:
        check_broker(get_settings().broker_url)
    except UnavailableError as error:
        echo(f"{error.message}; job {job_id} is stored, and waits for a worker")
        echo(f"hint: mend the broker; or score it here: RUBRICSVC_BROKER_URL=memory:// rubricsvc jobs wait {job_id}")


def watch(db: Database, job_id: int, began: float | None = None) -> Ending:
    """Show progress until the job has ended. Ctrl-C leaves it as it is. ``began`` is when the waiting did."""
    began = time.monotonic() if began is None else began
    first: int | None = None
    with _told_how_to_go_on(job_id):
        with progress_bar(f"job {job_id}") as bar:
            for now in looks(db, job_id):
                first = now.verdicts if first is None else first
                speed = (now.verdicts - first) / max(time.monotonic() - began, 0.1)
                failures = f", {now.failed_verdicts} failed" if now.failed_verdicts else ""
                bar.update(now.finished, now.total, f"{now.verdicts} verdicts{failures}, {speed:.1f}/s")
        return _patiently(lambda: _ending(db, job_id, began))


def looks(db: Database, job_id: int) -> Iterator[Progress]:
    """The job's progress, again and again until it has ended. A database that is away for a while is waited for."""

    def look() -> tuple[bool, Progress]:
        with db.read() as session:
            return jobs.get(session, job_id).status in OPEN, jobs.progress(session, job_id)

    while True:
        is_open, now = _patiently(look)
        yield now
        if not is_open:
            return
        time.sleep(LOOK_SECONDS)


def _patiently(read: Callable[[], T]) -> T:
    """What ``read`` reads; while the database is away it is tried again, for ``AWAY_SECONDS``."""
    gone_at: float | None = None
    while True:
        try:
            found = read()
        except AWAY as error:
            if gone_at is None:
                gone_at = time.monotonic()
                echo(f"the database does not answer, trying again for {AWAY_SECONDS:g} s: {_first_line(error)}")
            elif time.monotonic() - gone_at > AWAY_SECONDS:
                raise
            time.sleep(LOOK_SECONDS)
        else:
            if gone_at is not None:
                echo("the database answers again")
            return found


@contextmanager
def _told_how_to_go_on(job_id: int) -> Iterator[None]:
    """Whoever is interrupted, and whoever waits in vain for the database, is told how to go on."""
    go_on = f"Go on with: rubricsvc jobs wait {job_id}"
    try:
        yield
    except KeyboardInterrupt:
        echo(f"\ninterrupted; what is scored is kept. {go_on}")
        raise typer.Exit(INTERRUPTED) from None
    except AWAY as error:
        raise UnavailableError(
            f"the database does not answer: {_first_line(error)}", hint=f"what is scored is kept. {go_on}"
        ) from error


def _first_line(error: Exception) -> str:
    return str(getattr(error, "orig", error)).splitlines()[0]


def _ending(db: Database, job_id: int, began: float) -> Ending:
    with db.read() as session:
        job, progress = jobs.get(session, job_id), jobs.progress(session, job_id)
        summary = jobs.summary(session, job_id)
    return Ending(
        id=job_id,
        status=job.status,
        completions=progress.total,
        rewards=summary.rewards,
        mean_reward=summary.mean_reward,
        verdicts=progress.verdicts,
        failed_verdicts=progress.failed_verdicts,
        reasons=summary.reasons,
        vetoed=summary.vetoed,
        cached_share=summary.cached_share,
        voting=summary.voting,
        spent_usd=round(job.spent, 6) if job.judge.value.priced else None,
        waited_seconds=round(time.monotonic() - began, 2),
        worded=in_words(summary.voting, job.judge.value),
        hints=tuple(hints(job, progress, summary)),
    )


def ends_with(ending: Ending, as_json: bool) -> NoReturn:
    """Show how the job ended, and end the command with the exit code that says it."""
    told = asdict(ending)
    given, worded = told.pop("hints"), told.pop("worded")
    with ignore_broken_pipe():
        show(told if as_json else told | {"voting": worded}, as_json)
        for hint in given:
            echo(f"hint: {hint}")
    raise typer.Exit(OK if ending.status == "completed" else WITH_FAILURES)
