"""The base of all tables: column types, names of constraints, the time."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, ClassVar, TypeVar

from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    DateTime,
    Dialect,
    Integer,
    MetaData,
    Text,
    cast,
    column,
    func,
    literal,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.orm.interfaces import ORMOption
from sqlalchemy.types import TypeDecorator

from rubricsvc.core.base import MAX_ID, MAX_NAME_LENGTH
from rubricsvc.errors import InvalidError, NotFoundError, cut


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


Row = TypeVar("Row", bound=Base)


def id_of(ref: int | str) -> int | None:
    """Return the id that ``ref`` is or writes in ASCII digits (not ``1_0``, not ``１``); None if it is no id."""
    if isinstance(ref, str):
        if not re.fullmatch(r"[0-9]{1,19}", ref):
            return None
        ref = int(ref)
    return ref if 0 < ref <= MAX_ID else None


def find(
    session: Session, table: type[Row], ref: int | str, options: Sequence[ORMOption] = (), *, lock: bool = False
) -> Row | None:
    """Return the row of this id, if there is one; ``options`` as of ``Session.get``. ``lock``: until the commit."""
    number = id_of(ref)
    return session.get(table, number, options=options, with_for_update=lock or None) if number is not None else None


def existing(
    session: Session,
    table: type[Row],
    noun: str,
    ref: int | str,
    options: Sequence[ORMOption] = (),
    *,
    lock: bool = False,
) -> Row:
    """Return the row of this id."""
    row = find(session, table, ref, options, lock=lock)
    if row is None:
        raise missing(noun, ref)
    return row


def page_of(
    session: Session,
    table: type[Row],
    after: int,
    limit: int,
    *where: ColumnElement[bool],
    options: Sequence[ORMOption] = (),
    **columns: object,
) -> list[Row]:
    """Return up to ``limit`` rows with ids above ``after``, ascending, that have these values in ``columns``.

    None leaves a column open.
    """
    column = table.__table__.c
    equal = [column[name] == value for name, value in columns.items() if value is not None]
    query = select(table).where(column.id > after, *equal, *where).order_by(column.id).limit(limit)
    return list(session.scalars(query.options(*options)))


def missing(noun: str, ref: int | str, hint: str = "") -> NotFoundError:
    """Return the error for a row that does not exist."""
    hint = hint or f"list them with `rubricsvc {noun}s show` or GET /v1/{noun}s"
    shown = ref if isinstance(ref, int) or re.fullmatch("-?[0-9]+", ref) else repr(ref)
    return NotFoundError(f"no {noun} {cut(str(shown), 80)}", hint=hint)


def name_of(what: str, text: str, *, least: int = 1) -> str:
    """Return ``text`` if it can be a name."""
    if not least <= len(text.strip()) or len(text) > MAX_NAME_LENGTH:
        found = f"found {len(text)}" if text.strip() else "found none"
        hint = f"give it a name of {least} to {MAX_NAME_LENGTH} characters"
        raise InvalidError(f"{what} has {least} to {MAX_NAME_LENGTH} characters, {found}", hint=hint)
    return text


CHUNK = 500
"""Rows in a statement; SQLite takes 32,766 parameters."""

T = TypeVar("T")


def batched(items: Iterable[T], size: int = CHUNK) -> Iterator[list[T]]:
    """Yield lists of up to ``size`` items, in order."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def insert(session: Session, table: type[Base]) -> Any:
    """Return the dialect's ``insert``, with ``on_conflict_do_nothing`` and ``on_conflict_do_update``."""
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    return dialect.insert(table)


def insert_rows(session: Session, table: type[Base], rows: list[dict[str, Any]]) -> tuple[Any, Any]:
    """Return an ``insert`` of many rows with the same columns, and its parameters.

    PostgreSQL is handed all rows as one JSON text: its driver takes longer to quote thousands of parameters, or arrays
    of them, than the server to write. What a JSON column holds is a text in that text, so that it stays as it is.
    """
    statement = insert(session, table)
    if session.get_bind().dialect.name != "postgresql":
        return statement, rows
    columns = [table.__table__.columns[name] for name in rows[0]]
    documents = [c.name for c in columns if isinstance(c.type, JSON)]
    given = literal(json.dumps([row | {name: json.dumps(row[name]) for name in documents} for row in rows]), Text)
    typed = [column(c.name, Text() if c.name in documents else c.type) for c in columns]
    read = func.json_to_recordset(cast(given, JSON)).table_valued(*typed).render_derived("given", with_types=True)
    return statement.from_select(
        [c.name for c in columns], select(*(cast(read.c[c.name], c.type) for c in columns))
    ), None


def add_new(session: Session, table: type[Base], rows: list[dict[str, Any]]) -> None:
    """Insert the rows (all with the same columns) that are new, and count them in ``added``."""
    statement, parameters = insert_rows(session, table, rows)
    statement = statement.on_conflict_do_nothing().execution_options(preserve_rowcount=True)
    done = session.connection().execute(statement, parameters)
    added(session)[table.__tablename__] += done.rowcount


def added(session: Session) -> Counter[str]:
    """Return how many rows this session has added, by table."""
    counts: Counter[str] = session.info.setdefault("added", Counter())
    return counts


def get_or_add(session: Session, table: type[Row], unique: dict[str, Any], **others: Any) -> tuple[Row, bool]:
    """Return the row with these ``unique`` columns and whether it was added now, with the ``others``."""
    statement = insert(session, table).values(**unique, **others).on_conflict_do_nothing(index_elements=list(unique))
    new = session.execute(statement.returning(literal(1))).first() is not None
    added(session)[table.__tablename__] += new
    return session.scalars(select(table).filter_by(**unique)).one(), new
