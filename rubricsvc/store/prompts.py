"""Prompts: stored once, by content."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from sqlalchemy import select
from sqlalchemy.orm import Session

from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.prompt import Prompt
from rubricsvc.errors import NotFoundError
from rubricsvc.store.session import add_new, find, get_or_add, missing, name_of, rows_with
from rubricsvc.store.tables import PromptIdRow, PromptRow, TextRow


def add(session: Session, prompt: Prompt, external_id: str | None = None) -> PromptRow:
    """Keep ``prompt``; the same content is one row, which is found by each ``external_id`` that it came with."""
    if external_id is not None:
        name_of("a prompt's id", external_id, least=0)
    content = prompt.model_dump(mode="json")
    row, _ = get_or_add(session, PromptRow, {"digest": prompt.digest}, content=content, external_id=external_id)
    if row.external_id is None and external_id is not None:
        row.external_id = external_id
        session.flush()
    elif external_id not in (None, row.external_id):
        add_new(session, PromptIdRow, [{"external_id": external_id, "prompt_id": row.id}])
    return row


def get(session: Session, ref: int | str, *, as_in_file: bool = False) -> PromptRow:
    """Return the prompt with this id here, or else with this id in a file it came from.

    As a file refers to it, text is first an external id, and a number only an id here.
    """
    row = None if as_in_file and isinstance(ref, str) else find(session, PromptRow, ref)
    if row is None and not (as_in_file and isinstance(ref, int)):
        own = select(PromptRow).where(PromptRow.external_id == str(ref))
        also = select(PromptRow).join(PromptIdRow).where(PromptIdRow.external_id == str(ref)).order_by(PromptRow.id)
        row = session.scalars(own.limit(1)).first() or session.scalars(also.limit(1)).first()
        row = row or (find(session, PromptRow, ref) if as_in_file else None)
    if row is None:
        raise missing("prompt", ref)
    return row


def ids_of(session: Session, digests: Iterable[str]) -> set[int]:
    """Return the ids of the stored prompts among these."""
    return {id_ for (id_,) in rows_with(session, select(PromptRow.id), PromptRow.digest, digests)}


def ids_in_files(session: Session, ref: int | str) -> list[int]:
    """Return the ids of all prompts that a file may refer to: those with this external id, else the one with this id.

    Prompts of different content may come with the same external id.
    """
    if isinstance(ref, str):
        own = select(PromptRow.id).where(PromptRow.external_id == ref)
        others = select(PromptIdRow.prompt_id).where(PromptIdRow.external_id == ref)
        if ids := sorted({*session.scalars(own), *session.scalars(others)}):
            return ids
    row = find(session, PromptRow, ref)
    return [row.id] if row is not None else []


def keep_text(session: Session, text: str | None = None, digest: str = "") -> TextRow:
    """Keep a text under its SHA-256; or without one return what is stored under ``digest``.

    Raises:
        NotFoundError: Nothing is.
    """
    if text is not None:
        digest = sha256(text.encode()).hexdigest()
        return get_or_add(session, TextRow, {"digest": digest}, content=text)[0]
    if (row := session.get(TextRow, digest)) is None:
        raise NotFoundError(f"no text with the digest {digest} is stored", hint="give the text itself")
    return row


PromptKey = tuple[str, str | None]
"""The digest and the external id of a prompt."""


def add_many(session: Session, given: Iterable[tuple[Prompt, str | None]]) -> dict[PromptKey, int]:
    """Add the prompts that are new; return the ids of those that need no further id of a file."""
    keys = {
        (prompt.digest, external_id): prompt
        for prompt, external_id in given
        if external_id is None or 0 < len(external_id) <= MAX_NAME_LENGTH
    }
    rows = {digest: (external_id, prompt) for (digest, external_id), prompt in reversed(keys.items())}
    if not rows:
        return {}
    new = [
        {"digest": digest, "external_id": external_id, "content": prompt.model_dump(mode="json")}
        for digest, (external_id, prompt) in reversed(rows.items())
    ]
    add_new(session, PromptRow, new)
    query = select(PromptRow.digest, PromptRow.external_id, PromptRow.id).where(PromptRow.digest.in_(rows))
    stored = {digest: (external_id, id_) for digest, external_id, id_ in session.execute(query)}
    return {
        (digest, external_id): stored[digest][1]
        for digest, external_id in keys
        if external_id in (None, stored[digest][0])
    }
