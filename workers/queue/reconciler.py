"""Keeps the queue honest: returns leases of workers that died, counts what they may have spent, and rings for work that
nobody heard of."""

from __future__ import annotations

import threading

from celery import Celery
from sqlalchemy.exc import SQLAlchemyError
from structlog import get_logger

from rubricsvc.broker import Bell
from rubricsvc.errors import UnavailableError
from rubricsvc.settings import Settings
from rubricsvc.store import budgets, leases, outbox
from rubricsvc.store.session import Database

log = get_logger(__name__)


class Reconciler:
    """A thread that looks every ``settings.reconcile_seconds``. Any number may run; each step is one transaction."""

    def __init__(self, db: Database, app: Celery, settings: Settings) -> None:
        self.db = db
        self.bell = Bell(db, app)
        self.settings = settings
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)

    def start(self) -> Reconciler:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10)

    def look(self, *, ring_all: bool = False) -> int:
        """Once: leases returned. ``ring_all`` rings for all pending work, as a worker that has just started should."""
        with self.db.write() as session:
            returned = leases.reconcile(session, max_leases=self.settings.max_leases)
            if ring_all:
                for judge_id in leases.judges_with_work(session):
                    outbox.ring(session, judge_id)
        self.bell.ring()
        self._close_books()
        if returned:
            log.info("leases returned", count=returned)
        return returned

    def _close_books(self) -> None:
        """Job by job, and after the leases: whoever locks a job's row locks it before its items."""
        with self.db.read() as session:
            job_ids = budgets.orphaned(session)
        for job_id in job_ids:
            with self.db.write() as session:
                lost = budgets.close(session, job_id)
            log.info("money of killed workers counts as spent", job_id=job_id, dollars=lost)

    def _run(self) -> None:
        first = True
        while True:
            try:
                self.look(ring_all=first)
                first = False
            except (SQLAlchemyError, UnavailableError) as error:  # the database is away: look again when it may be back
                log.warning("database unreachable", error=str(error).splitlines()[0])
            if self._stop.wait(self.settings.reconcile_seconds):
                return
