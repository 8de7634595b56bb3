"""The Celery tasks. They are thin: a message says who has work, and the tables say what it is."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import threading

from celery import Celery

from rubricsvc.broker import attach
from rubricsvc.settings import Settings
from rubricsvc.store import outbox
from rubricsvc.store.migrate import open_database
from rubricsvc.store.session import Database
from workers.queue.drain import Drainer
from workers.queue.engine_pool import Kept

stopping = multiprocessing.get_context("fork").Event()
"""Set when this worker is to stop: drains finish what they hold, or give it back. Forked children see it too."""


class Doors:
    """One drain at a time for each judge of a process, so that a judge that hangs keeps one slot and not all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rung: dict[int, bool] = {}

    def enter(self, judge_id: int) -> bool:
        """Whether to drain; where somebody does already, he is told when he leaves."""
        with self._lock:
            free = judge_id not in self._rung
            self._rung[judge_id] = not free
            return free

    def leave(self, judge_id: int) -> bool:
        """Whether somebody rang since ``enter``."""
        with self._lock:
            return self._rung.pop(judge_id)


kept = Kept()
"""The engines of this process. (The parent of forked ones drains nothing, and so keeps none.)"""

_lock = threading.Lock()
_databases: dict[tuple[str, int], Database] = {}


def database(settings: Settings) -> Database:
    """This process's database. A forked worker opens its own: connections do not survive a fork."""
    name = (settings.database_url, os.getpid())
    with _lock:
        if name not in _databases:
            _databases[name] = attach(open_database(settings.database_url), settings)
        return _databases[name]


@atexit.register
def close() -> None:
    """Close what this process has opened; what it has inherited is its parent's."""
    kept.close()
    for name in [name for name in _databases if name[1] == os.getpid()]:
        _databases.pop(name).close()


def register(app: Celery, settings: Settings, db: Database | None = None) -> None:
    """Add the tasks to ``app``. Without ``db`` each process opens its own."""
    doors = Doors()

    @app.task(name=outbox.SCORE, shared=False)
    def score(judge_id: int) -> None:
        """Score what waits for this judge, until the table is dry or the time is up."""
        if not doors.enter(judge_id):
            return
        dry = False
        try:
            books = db or database(settings)
            dry = Drainer(books, settings, stopping, kept).run(judge_id)
        finally:
            rung = doors.leave(judge_id)
        if (rung or not dry) and not stopping.is_set():
            with books.write() as session:
                outbox.ring(session, judge_id)
