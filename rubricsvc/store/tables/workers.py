"""The tables of workers and of the messages to them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Float, String
from sqlalchemy.orm import Mapped, mapped_column

from rubricsvc.store.base import Base, DatedRow


class WorkerRow(Base):
    """A running worker process, or one that was killed. The times are by `base.database_time`."""

    __tablename__ = "workers"

    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    host: Mapped[str] = mapped_column(String(255))
    pid: Mapped[int]
    started_at: Mapped[float] = mapped_column(Float)
    seen_at: Mapped[float] = mapped_column(Float)


class OutboxRow(DatedRow):
    """A message to workers: written with the work it announces, deleted when the broker has it."""

    __tablename__ = "outbox"

    task: Mapped[str] = mapped_column(String(100))
    args: Mapped[list[Any]]
