"""References to rows as people write them: ids as numbers or digits, and names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from sqlalchemy.orm import Session
from sqlalchemy.orm.interfaces import ORMOption

from rubricsvc.core.base import MAX_ID, MAX_NAME_LENGTH
from rubricsvc.errors import InvalidError, NotFoundError, cut
from rubricsvc.store.tables import Base

Row = TypeVar("Row", bound=Base)


def id_of(ref: int | str) -> int | None:
    """Return the id that ``ref`` is or writes in ASCII digits (not ``1_0``, not ``１``); None if it is no id."""
    if isinstance(ref, str):
        if not re.fullmatch(r"[0-9]{1,19}", ref):
            return None
        ref = int(ref)
    return ref if 0 < ref <= MAX_ID else None


def find(session: Session, table: type[Row], ref: int | str, options: Sequence[ORMOption] = ()) -> Row | None:
    """Return the row of this id, if there is one; ``options`` as of ``Session.get``."""
    number = id_of(ref)
    return session.get(table, number, options=options) if number is not None else None


def missing(noun: str, ref: int | str) -> NotFoundError:
    """Return the error for a row that does not exist."""
    hint = f"list them with `rubricsvc {noun}s list` or GET /v1/{noun}s"
    return NotFoundError(f"no {noun} {cut(repr(ref), 80)}", hint=hint)


def name_of(what: str, text: str, *, least: int = 1) -> str:
    """``text``, where it can be a name.

    Raises:
        InvalidError: it is blank (and ``least`` is not 0), or longer than the tables have room for.
    """
    if not least <= len(text.strip()) or len(text) > MAX_NAME_LENGTH:
        found = f"found {len(text)}" if text.strip() else "found none"
        hint = f"give it a name of {least} to {MAX_NAME_LENGTH} characters"
        raise InvalidError(f"{what} has {least} to {MAX_NAME_LENGTH} characters, {found}", hint=hint)
    return text
