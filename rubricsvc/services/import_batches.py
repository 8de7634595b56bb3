"""The new prompts and rubrics of a batch of records, added in a few statements.

Whatever needs a decision (a name that exists, content that is stored as a draft or has examples, an edit that is
reviewed) is left to `editing.add_version`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rubricsvc.core.states import APPROVED, IMPORTED
from rubricsvc.store import prompts, rubrics

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.prompt import Prompt
    from rubricsvc.formats import Record
    from rubricsvc.services.editing import Edit


@dataclass
class Batch:
    """The ids of the prompts by digest and external id, and of the new rubrics by name and digest."""

    prompt_ids: dict[prompts.PromptKey, int] = field(default_factory=dict)
    rubric_ids: dict[tuple[str, str], int] = field(default_factory=dict)

    def prompt_id(self, session: Session, prompt: Prompt, external_id: str | None) -> int:
        """Return the id of a prompt, which is added if it is new."""
        key = (prompt.digest, external_id)
        if key not in self.prompt_ids:
            self.prompt_ids[key] = prompts.add(session, prompt, external_id).id
        return self.prompt_ids[key]


def with_stored_prompt(session: Session, record: Record) -> Record:
    """Return the record with the stored prompt of its id, if its format has only the text, and that is the same."""
    if not record.text_only or record.prompt is None or record.id is None:
        return record
    stored = prompts.many(session, prompts.ids_in_files(session, record.id)).values()
    same = next((one for one in stored if one.messages == record.prompt.messages), record.prompt)
    return replace(record, prompt=same)


def add_prompts(session: Session, records: Sequence[Record]) -> Batch:
    """Add the new prompts of the records."""
    given = ((record.prompt, record.id) for record in records if record.prompt is not None)
    return Batch(prompts.add_many(session, given))


def add_rubrics(session: Session, records: Sequence[Record], batch: Batch, edit: Edit) -> None:
    """Add the rubrics with new names that are approved at once."""
    if edit.parent is not None or edit.state(IMPORTED) != APPROVED:
        return
    given = [(record.rubric, record) for record in records if record.rubric is not None]
    drafts: set[str] = set()
    if edit.policy != "none":
        drafts = {row.digest for row in rubrics.only_drafts(session, [rubric.digest for rubric, _ in given])}
    new = [
        (rubric, record.name, batch.prompt_id(session, record.prompt, record.id) if record.prompt else None)
        for rubric, record in given
        if rubric.digest not in drafts and not rubric.examples  # which may fail its own tests
    ]
    batch.rubric_ids = rubrics.add_many(session, new, origin=IMPORTED, added_by=edit.by)
