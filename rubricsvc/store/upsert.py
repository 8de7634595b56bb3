"""INSERT … ON CONFLICT for both databases."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import JSON, Text, cast, column, func, literal, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from rubricsvc.store.base import Base

Row = TypeVar("Row", bound=Base)

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
