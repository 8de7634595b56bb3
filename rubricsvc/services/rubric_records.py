"""Stored rubrics as records of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rubricsvc.core.states import APPROVED
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
    """Yield the named rubrics, or the newest approved version of every name that has one.

    Raises:
        NotFoundError: there is no such rubric.
        NotApprovedError: a name has no approved version.
    """
    if refs:
        rows = (rubrics.get(session, ref) for ref in refs)
    else:
        rows = (
            row for row in every(rubrics.page, session, state=APPROVED) if rubrics.get(session, row.name).id == row.id
        )
    return (record_of(session, row) for row in rows)
