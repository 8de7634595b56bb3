"""Stored rubrics as records of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rubricsvc.formats.record import Record
from rubricsvc.store import prompts, rubrics
from rubricsvc.store.session import every

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.store.tables import RubricRow


def record_of(session: Session, row: RubricRow) -> Record:
    """Return a stored rubric with its prompt."""
    prompt = prompts.get(session, row.prompt_id) if row.prompt_id is not None else None
    return Record(prompt.value if prompt else None, row.value, id=prompt.external_id if prompt else None, name=row.name)


def stored_records(session: Session, refs: Sequence[str] | None) -> Iterator[Record]:
    """Yield the named rubrics, or the newest version of every name.

    Raises:
        NotFoundError: there is no such rubric.
    """
    if refs:
        rows = (rubrics.get(session, ref) for ref in refs)
    else:
        rows = (row for row in every(rubrics.page, session) if rubrics.get(session, row.name).id == row.id)
    return (record_of(session, row) for row in rows)
