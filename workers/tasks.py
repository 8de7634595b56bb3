"""The Celery tasks. They are thin: a message says who has work, and the tables say what it is."""

from __future__ import annotations

import functools
import multiprocessing
import os

from celery import Celery

from rubricsvc.broker import Bell
from rubricsvc.settings import Settings
from rubricsvc.store import outbox
from rubricsvc.store.migrate import open_database
from rubricsvc.store.session import Database
from workers.leases import Drainer

stopping = multiprocessing.get_context("fork").Event()
"""Set when this worker is to stop: drains finish what they hold, or give it back. Forked children see it too."""


def database(url: str) -> Database:
    """This process's database. A forked worker opens its own: connections do not survive a fork."""
    return _database(url, os.getpid())


@functools.lru_cache(maxsize=8)
def _database(url: str, _pid: int) -> Database:
    return open_database(url)


def register(app: Celery, settings: Settings) -> None:
    """Add the tasks to ``app``."""

    @app.task(name=outbox.SCORE, shared=False)
    def score(judge_id: int) -> None:
        """Score what waits for this judge, until the table is dry or the time is up."""
        db = database(settings.database_url)
        if Drainer(db, settings, stopping).run(judge_id) is False and not stopping.is_set():
            with db.write() as session:
                outbox.ring(session, judge_id)
            Bell(db, app).ring()
