"""The Celery application and its workers. A message names a judge with work; the tables hold the work."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import math
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from celery import Celery, signals
from celery.concurrency.prefork import TaskPool
from celery.worker import WorkController
from celery.worker import state as worker_state
from kombu.exceptions import OperationalError as BrokerError
from sqlalchemy.exc import SQLAlchemyError
from structlog import get_logger

from rubricsvc.broker import MEMORY, make_celery, send
from rubricsvc.errors import InvalidError, RubricsvcError, UnavailableError
from rubricsvc.settings import Settings, get_settings
from rubricsvc.store import jobs, leases
from rubricsvc.store.session import AWAY, Database, attach, relay
from workers.engines import make_engine
from workers.engines.local.embedded_model import fetch_embedded
from workers.queue.drain import NAME, Drainer
from workers.queue.engine_pool import EnginePool

log = get_logger(__name__)


@contextlib.contextmanager
def _every(
    seconds: float, name: str, step: Callable[[], None], last: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Call a function at once and then every so many seconds, in a thread, while the block runs; then ``last``."""
    stop = threading.Event()

    def run() -> None:
        step()
        while not stop.wait(seconds):
            step()
        last()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)


@contextlib.contextmanager
def reporting(db: Database, processes: int = 1) -> Iterator[None]:
    """Report every `leases.REPORT_SECONDS`, also while other threads are busy; remove the worker's row at the end."""
    started, host = time.monotonic(), socket.gethostname()

    def report(*, last: bool = False) -> None:
        uptime = None if last else time.monotonic() - started
        try:
            with db.write() as session:
                leases.report_worker(session, NAME, host=host, pid=os.getpid(), uptime=uptime, processes=processes)
        except (SQLAlchemyError, RubricsvcError) as error:
            db.note_outage(error)

    report()
    with _every(leases.REPORT_SECONDS, "reporter", report, partial(report, last=True)):
        yield


def dead_processes(names: Iterable[str]) -> list[str]:
    """Return the names of drains of this host whose process does not exist."""
    dead = []
    for name in names:
        try:
            os.kill(int(name.partition("/")[2].split(":")[0]), 0)  # sends nothing
        except ProcessLookupError:
            dead.append(name)
        except (PermissionError, ValueError):  # it exists, or is not named
            pass
    return dead


LOST_SECONDS = leases.REPORT_SECONDS * leases.MISSED_REPORTS


def reconcile(db: Database, app: Celery, settings: Settings, *, at_start: bool = False, free_lost: bool = False) -> int:
    """Repair the queue once; return the number of released leases.

    ``at_start`` wakes workers for all pending work. A worker takes over from its own killed processes, before their
    leases expire; one inside a process at its start also from those of its host: the same command may be run again at
    once. The parts that killed processes of this host had of a judge's limits are free at once. ``free_lost`` releases
    the leases of workers that have ended or are lost. One that was only paused finds its fences outdated.
    """
    with db.write() as session:
        held, dead = leases.holders(session), list[str]()
        if free_lost:
            alive = {row.name for row, seen in leases.list_workers(session) if seen <= LOST_SECONDS}
            dead = [name for name in held if name.partition("/")[0] not in alive]
        host = f"{socket.gethostname()}:"
        gone = dead_processes(name for name in held if name.startswith(host))
        here = host if at_start and settings.broker_url.startswith(MEMORY) else f"{NAME}/"
        dead += [name for name in gone if name.startswith(here)]
        most = settings.max_leases
        returned = leases.reconcile(session, max_leases=most, dead=dead, gone=gone, announce_all=at_start)
    relay(db, partial(send, app))
    with db.read() as session:
        job_ids = jobs.orphaned_jobs(session)
    for job_id in job_ids:  # one by one and after the leases: a job's row is locked before its items
        with db.write() as session:
            lost = jobs.write_off(session, job_id)
        log.info("reservations of killed workers counted as spent", job_id=job_id, dollars=lost)
    if returned:
        log.info("leases released", count=returned)
    return returned


@contextlib.contextmanager
def reconciling(db: Database, app: Celery, settings: Settings) -> Iterator[None]:
    """Repair the queue every ``settings.reconcile_seconds``. Any number of workers may do so.

    Workers count as lost only while the database has answered here for `LOST_SECONDS`: after an outage no worker has
    reported, and all go on.
    """
    first, answered_at, answering_since = True, -math.inf, 0.0

    def step() -> None:
        nonlocal first, answered_at, answering_since
        now = time.monotonic()
        if now - answered_at > settings.reconcile_seconds + leases.REPORT_SECONDS / 2:
            answering_since = now
        try:
            reconcile(db, app, settings, at_start=first, free_lost=now - answering_since > LOST_SECONDS)
            first, answered_at = False, now
        except (SQLAlchemyError, UnavailableError) as error:
            db.note_outage(error)

    with _every(settings.reconcile_seconds, "reconciler", step):
        yield


MAX_PASSES = 3
"""How often a message is passed on by workers that drain its judge already, to reach one that does not."""

_PASS_SECONDS = 0.1
"""Before the first pass, doubled for each further one: a worker that has just started takes no messages yet."""

stopping = multiprocessing.get_context("fork").Event()
"""Set when this worker must stop: drains finish or release what they hold. Forked children see it too."""

engines = EnginePool()
"""The engines of this process. The parent of forked workers drains nothing, and so has none."""

_lock = threading.Lock()
_databases: dict[tuple[str, int], Database] = {}


def database(settings: Settings) -> Database:
    """Return this process's database. A forked worker opens its own: connections do not survive a fork."""
    name = (settings.database_url, os.getpid())
    with _lock:
        if name not in _databases:
            _databases[name] = attach(Database(settings.database_url), settings)
        return _databases[name]


@atexit.register
def close() -> None:
    """Close what this process opened; what it inherited is its parent's."""
    engines.close()
    for name in [name for name in _databases if name[1] == os.getpid()]:
        _databases.pop(name).close()


def make_app(settings: Settings, db: Database | None = None) -> Celery:
    """Return the Celery application with the task. Without ``db`` each process opens its own database.

    There is one drain of a judge at a time in a process, so that a judge that hangs keeps one thread and not all.
    """
    app = make_celery(settings)
    lock, requested_again = threading.Lock(), dict[int, bool]()
    """Of the judges that are drained, whether another message came meanwhile."""
    max_passes = 0 if settings.broker_url.startswith(MEMORY) else MAX_PASSES  # it has no other worker

    @app.task(name=leases.SCORE, shared=False)
    def score(judge_id: int, message_id: int, passes: int = 0) -> None:
        """Score the pending items of a judge until none is left or the time is up."""
        opened = db or database(settings)
        if passes < max_passes and judge_id in requested_again:  # the message is not read yet, so no other is needed
            stopping.wait(_PASS_SECONDS * 2**passes)
            with contextlib.suppress(BrokerError, OSError):
                app.send_task(leases.SCORE, [judge_id, message_id, passes + 1], retry=False, ignore_result=True)
                return
        with opened.write() as session:
            leases.take_message(session, message_id)
        with lock:
            free = judge_id not in requested_again
            requested_again[judge_id] = not free
        if not free:
            return
        none_left = False
        try:
            none_left = Drainer(opened, settings, stopping, engines).run(judge_id)
        except AWAY as error:  # longer than its leases: the reconciler returns them and wakes a worker again
            opened.note_outage(error)
            return
        finally:
            with lock:
                again = requested_again.pop(judge_id)
        if (again or not none_left) and not stopping.is_set():
            with opened.write() as session:
                leases.publish(session, judge_id)

    return app


def with_worker_threads(app: Celery, settings: Settings) -> Celery:
    """Reconcile and report in every worker, and stop workers between two completions on request."""
    running = contextlib.ExitStack()

    def ready(sender: Any, **_: Any) -> None:
        stopping.clear()
        processes = sender.pool.num_processes if isinstance(sender.pool, TaskPool) else 1
        db = database(settings)
        running.enter_context(reconciling(db, app, settings))
        running.enter_context(reporting(db, processes))

    signals.worker_ready.connect(ready, weak=False)
    signals.worker_shutting_down.connect(lambda **_: stopping.set(), weak=False)
    signals.worker_shutdown.connect(lambda **_: running.close(), weak=False)  # it reports until its drains have ended
    signals.worker_process_shutdown.connect(lambda **_: close(), weak=False)  # a fork runs no atexit
    return app


def __getattr__(name: str) -> Any:
    if name == "app":  # made when asked for, so that importing this module reads no settings
        settings = get_settings()
        globals()[name] = app = with_worker_threads(make_app(settings), settings)
        return app
    raise AttributeError(name)


JUDGES_AT_ONCE = 16
"""Judges that are drained concurrently. An unused slot costs nothing; local models share one thread and take turns."""

_only_one = threading.Lock()


@contextlib.contextmanager
def embedded_worker(settings: Settings, db: Database, *, keep_models: bool = False) -> Iterator[None]:
    """Run a worker on ``db`` while the block runs; unfinished items are released at the end.

    Judges do not wait for each other. The broker is ``memory://`` whatever the settings say. Celery keeps its stop flag
    in a module, so there is at most one such worker in a process. With ``keep_models`` local models stay in memory from
    one job to the next.
    """
    if not _only_one.acquire(blocking=False):
        raise InvalidError("this process has an embedded worker already", hint="use the one that runs")
    with contextlib.ExitStack() as stack:
        stack.callback(_only_one.release)
        engines.keep_models = keep_models
        settings = settings.model_copy(update={"broker_url": MEMORY, "database_url": db.url})
        app = make_app(settings, db)
        app.set_default()  # a pool's thread looks its tasks up in Celery's default application
        stack.callback(setattr, db, "on_commit", None)
        attach(db, settings, app)
        stopping.clear()
        worker_state.should_stop = worker_state.should_terminate = None
        worker = WorkController(
            app=app,
            pool="threads",
            concurrency=JUDGES_AT_ONCE,
            hostname="embedded@localhost",
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            task_events=False,
        )
        thread = threading.Thread(target=worker.start, name="embedded-worker", daemon=True)
        with reconciling(db, app, settings), reporting(db):
            thread.start()
            try:
                yield
            finally:
                stopping.set()
                worker_state.should_stop = 0  # type: ignore[assignment]  # an exit status; the stub knows only None
                thread.join(30)
                engines.close()


def worker_for(db: Database, job_id: int, notify: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
    """Return a worker of this process for an open job, unless the broker can wake others for it.

    Errors of the judge's engine are raised; ``notify`` gets a message about a download.
    """
    with db.read() as session:
        job = jobs.get(session, job_id)
        judge = job.judge.value if job.finished_at is None and db.on_commit is None else None
    if judge is None:
        return contextlib.nullcontext()
    fetch_embedded(notify, judge)
    asyncio.run(make_engine(judge).aclose())
    return embedded_worker(get_settings(), db)
