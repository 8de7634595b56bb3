"""Repair of the queue: leases and rows of dead workers, what these may have spent, and work without a message."""

from __future__ import annotations

import socket
import threading

from celery import Celery
from sqlalchemy.exc import SQLAlchemyError
from structlog import get_logger

from rubricsvc.broker import MEMORY, OutboxRelay
from rubricsvc.errors import UnavailableError
from rubricsvc.settings import Settings
from rubricsvc.store import budgets, leases, outbox, workers
from rubricsvc.store.session import Database
from workers.queue.reporter import dead_processes

log = get_logger(__name__)


class Reconciler:
    """A thread that repairs the queue every ``settings.reconcile_seconds``. Any number may run."""

    def __init__(self, db: Database, app: Celery, settings: Settings) -> None:
        self.db = db
        self.relay = OutboxRelay(db, app)
        self.settings = settings
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)

    def start(self) -> Reconciler:
        """Start the thread; return the reconciler."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop the thread."""
        self._stop.set()
        self._thread.join(10)

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
        self._count_lost_money()
        if returned:
            log.info("leases released", count=returned)
        return returned

    def _count_lost_money(self) -> None:
        """Job by job and after the leases, because a job's row is locked before its items."""
        with self.db.read() as session:
            job_ids = budgets.orphaned_jobs(session)
        for job_id in job_ids:
            with self.db.write() as session:
                lost = budgets.write_off(session, job_id)
            log.info("reservations of killed workers counted as spent", job_id=job_id, dollars=lost)

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
