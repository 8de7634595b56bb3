"""References to rows as people write them (ids as numbers or digits, and names), and lists of rows in pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session
from sqlalchemy.orm.interfaces import ORMOption

from rubricsvc.core.base import MAX_ID, MAX_NAME_LENGTH
from rubricsvc.errors import InvalidError, NotFoundError, cut
from rubricsvc.store.base import Base

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
    """Return the row of this id.

    Raises:
        NotFoundError: There is none.
    """
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
    hint = hint or f"list them with `rubricsvc {noun}s list` or GET /v1/{noun}s"
    return NotFoundError(f"no {noun} {cut(repr(ref), 80)}", hint=hint)


def name_of(what: str, text: str, *, least: int = 1) -> str:
    """Return ``text`` if it can be a name.

    Raises:
        InvalidError: it is blank (and ``least`` is not 0), or longer than the tables have room for.
    """
    if not least <= len(text.strip()) or len(text) > MAX_NAME_LENGTH:
        found = f"found {len(text)}" if text.strip() else "found none"
        hint = f"give it a name of {least} to {MAX_NAME_LENGTH} characters"
        raise InvalidError(f"{what} has {least} to {MAX_NAME_LENGTH} characters, {found}", hint=hint)
    return text
