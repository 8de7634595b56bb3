"""The base of all tables: column types, names of constraints, the time."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Integer, MetaData, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.types import TypeDecorator


class UtcDateTime(TypeDecorator[datetime]):
    """An instant in UTC. SQLite stores no time zone; it is added when read."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC."""
        return value.astimezone(UTC) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Add the time zone."""
        return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value


def utcnow() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def database_time(session: Session) -> float:
    """Return seconds since the epoch by the clock that all workers share: the database's (on SQLite the machine's)."""
    if session.get_bind().dialect.name == "postgresql":
        return float(session.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())
    return time.time()


class Base(DeclarativeBase):
    """The base of all tables: names of constraints, and column types."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar = {
        dict[str, Any]: JSON,
        list[Any]: JSON,
        datetime: UtcDateTime,
        int: BigInteger().with_variant(Integer, "sqlite"),  # SQLite counts its own ids only in plain INTEGER
    }


class DatedRow(Base):
    """A row with an id and the time when it was added."""

    __abstract__ = True

    id: Mapped[int] = mapped_column(primary_key=True)
    created_at: Mapped[datetime] = mapped_column(default=utcnow)
