"""The threads beside a worker: one reports that it runs, one repairs the queue after workers that do not."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Iterable
from typing import Self

from celery import Celery
from sqlalchemy.exc import SQLAlchemyError
from structlog import get_logger

from rubricsvc.broker import MEMORY, OutboxRelay
from rubricsvc.errors import RubricsvcError, UnavailableError
from rubricsvc.settings import Settings
from rubricsvc.store import budgets, leases, outbox, workers
from rubricsvc.store.session import Database

log = get_logger(__name__)

NAME = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:6]}"
"""The name of this worker. A forked child has its parent's: it is a part of the same worker."""


def dead_processes(names: Iterable[str]) -> list[str]:
    """Return the names of workers of this host whose process does not exist; a name may have the part of a drain."""
    dead = []
    for name in names:
        try:
            os.kill(int(name.split(":")[1]), 0)  # sends nothing
        except ProcessLookupError:
            dead.append(name)
        except PermissionError:  # it exists
            pass
    return dead


class _WorkerThread:
    """A thread that runs until `stop`."""

    def __init__(self, name: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Self:
        """Start the thread; return this object."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        raise NotImplementedError


class WorkerReporter(_WorkerThread):
    """Reports every `workers.REPORT_SECONDS`, also while other threads are busy; removes the worker's row at the end.

    A failure is logged when it begins and when it ends, and changes nothing else.
    """

    def __init__(self, db: Database) -> None:
        super().__init__("reporter")
        self.db = db
        self._started = time.monotonic()
        self._failing = False

    def start(self) -> Self:
        """Report once and start the thread; return the reporter."""
        self._report()
        return super().start()

    def _run(self) -> None:
        while not self._stop.wait(workers.REPORT_SECONDS):
            self._report()
        self._report(last=True)

    def _report(self, *, last: bool = False) -> None:
        try:
            with self.db.write() as session:
                if last:
                    workers.remove(session, NAME)
                else:
                    uptime = time.monotonic() - self._started
                    workers.report(session, NAME, host=socket.gethostname(), pid=os.getpid(), uptime=uptime)
        except (SQLAlchemyError, RubricsvcError) as error:
            if not self._failing:
                log.warning("worker report not written, the work goes on", error=str(error).splitlines()[0])
            self._failing = True
        else:
            if self._failing:
                log.info("worker report written again")
            self._failing = False


class Reconciler(_WorkerThread):
    """Repairs the queue every ``settings.reconcile_seconds``. Any number may run."""

    def __init__(self, db: Database, app: Celery, settings: Settings) -> None:
        super().__init__("reconciler")
        self.db = db
        self.relay = OutboxRelay(db, app)
        self.settings = settings

    def run_once(self, *, at_start: bool = False) -> int:
        """Repair once; return the number of released leases.

        ``at_start`` wakes workers for all pending work. A worker inside a process also takes over from the killed
        processes of its host then, before their leases expire: the same command may be run again at once.
        """
        with self.db.write() as session:
            dead: list[str] = []
            if at_start and self.settings.broker_url.startswith(MEMORY):
                dead = dead_processes(leases.holders(session, socket.gethostname()))
            returned = leases.reconcile(session, max_leases=self.settings.max_leases, dead=dead)
            if at_start:
                for judge_id in leases.judges_with_work(session):
                    outbox.publish(session, judge_id)
            workers.remove_lost(session)
        self.relay.flush()
        with self.db.read() as session:
            job_ids = budgets.orphaned_jobs(session)
        for job_id in job_ids:  # one by one and after the leases: a job's row is locked before its items
            with self.db.write() as session:
                lost = budgets.write_off(session, job_id)
            log.info("reservations of killed workers counted as spent", job_id=job_id, dollars=lost)
        if returned:
            log.info("leases released", count=returned)
        return returned

    def _run(self) -> None:
        first = True
        while True:
            try:
                self.run_once(at_start=first)
                first = False
            except (SQLAlchemyError, UnavailableError) as error:
                log.warning("database unreachable", error=str(error).splitlines()[0])
            if self._stop.wait(self.settings.reconcile_seconds):
                return
