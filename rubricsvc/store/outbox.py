"""Messages to workers, written in the transaction that stores the work and sent to the broker after its commit.

A message carries ids only. A lost message loses no work: the work is in ``items``, and the reconciler publishes it
again. A second message is harmless: its drain finds no pending items.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from rubricsvc.store import workers
from rubricsvc.store.base import CHUNK
from rubricsvc.store.session import PUBLISHED, Database
from rubricsvc.store.tables import OutboxRow

SCORE = "rubricsvc.score"
"""The task that drains the items of one judge."""

ITEMS_PER_MESSAGE = 32
MAX_MESSAGES = 32
"""Messages about a large job: the processes of a prefork pool are one worker, and each can take one."""

Send = Callable[[str, list[object]], None]


def publish(session: Session, judge_id: int, items: int = 1) -> None:
    """Tell workers that the judge has so many pending items: all that are running, and no more than there are items."""
    times = min(items, max(1, workers.running(session), min(MAX_MESSAGES, items // ITEMS_PER_MESSAGE)))
    session.add_all(OutboxRow(task=SCORE, args=[judge_id]) for _ in range(times))
    session.info[PUBLISHED] = True


def relay(db: Database, send: Send) -> int:
    """Send the waiting messages and delete them; return how many. An error of ``send`` leaves the rest."""
    oldest = select(OutboxRow).order_by(OutboxRow.id).limit(CHUNK)
    with db.read() as session:
        waiting = [(row.id, row.task, row.args) for row in session.scalars(oldest)]
    sent: list[int] = []
    try:
        for id_, task, args in waiting:
            send(task, args)
            sent.append(id_)
    finally:
        if sent:
            with db.write() as session:
                session.execute(delete(OutboxRow).where(OutboxRow.id.in_(sent)))
    return len(sent)
