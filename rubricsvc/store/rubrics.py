"""Rubrics: named, versioned, never changed. Identical content under a name is the same version."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import func, select
from sqlalchemy.orm import Session, aliased

from rubricsvc.core.formulas import FORMULAS, FormulaError
from rubricsvc.core.reward import check_formula
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import ConflictError, InvalidError, cut
from rubricsvc.store.ids import find, id_of, missing, name_of, page_of
from rubricsvc.store.tables import PromptRow, RubricRow
from rubricsvc.store.upsert import add_new, batched


def add(
    session: Session, rubric: Rubric, *, name: str, prompt_id: int | None = None, origin: str = "imported"
) -> RubricRow:
    """Add ``rubric`` as the next version of ``name``, or return the version that has this content already.

    Raises:
        InvalidError: its formula is unknown or does not allow these weights; or the name is empty, a bare number, has
            blanks around it or an ``@`` in it.
        ConflictError: this version of the name belongs to another prompt.
    """
    name_of("a rubric's name", name)
    if "@" in name or name != name.strip() or name.isdecimal():
        raise InvalidError(
            f"{cut(repr(name), 80)} cannot name a rubric", hint="no '@', no blanks around it, not a bare number"
        )
    try:
        check_formula(rubric)
    except FormulaError as error:
        hint = f"give it other weights, or another of the formulas {', '.join(sorted(FORMULAS))}"
        raise InvalidError(str(error), hint=hint, path="formula") from error
    same = select(RubricRow).where(RubricRow.name == name, RubricRow.digest == rubric.digest)
    while (row := session.scalars(same).first()) is None:
        newest = session.scalar(select(func.max(RubricRow.version)).where(RubricRow.name == name)) or 0
        values = {
            "name": name,
            "version": newest + 1,
            "digest": rubric.digest,
            "prompt_id": prompt_id,
            "origin": origin,
            "content": rubric.model_dump(mode="json"),
        }
        add_new(session, RubricRow, [values])  # a version just taken by someone else is no error: look, take the next
    if prompt_id not in (None, row.prompt_id):
        raise _belongs_elsewhere(session, row, prompt_id)
    return row


def _belongs_elsewhere(session: Session, row: RubricRow, prompt_id: int | None) -> ConflictError:
    own, given = (session.get(PromptRow, id_) if id_ else None for id_ in (row.prompt_id, prompt_id))
    hint = "name each prompt's rubric apart"
    whose = "another prompt" if own else "no prompt"
    if own and given and own.external_id is not None and own.external_id == given.external_id:
        whose = f"the stored prompt {own.external_id!r}, whose content differs from that of this {own.external_id!r}"
        hint = "a changed prompt is a new prompt: give it an id and a rubric name of its own"
    return ConflictError(f"rubric {row.name!r} with this content belongs to {whose}", hint=hint)


def get(session: Session, ref: int | str) -> RubricRow:
    """Return a rubric by id, ``name`` (its newest version), ``name@version``, or at least 8 digits of the digest.

    Raises:
        NotFoundError: there is none.
    """
    text = str(ref)
    if (found := find(session, RubricRow, ref)) is not None:
        return found
    name, _, version = text.partition("@")
    query = select(RubricRow).where(RubricRow.name == name).order_by(RubricRow.version.desc()).limit(1)
    if version:
        query = query.where(RubricRow.version == (id_of(version) or -1))
    row = session.scalars(query).first()
    if row is None and len(text) >= 8 and set(text) <= set("0123456789abcdef"):
        row = session.scalars(select(RubricRow).where(RubricRow.digest.startswith(text)).limit(1)).first()
    if row is None:
        raise missing("rubric", ref)
    return row


def many(session: Session, ids: Iterable[int]) -> dict[int, RubricRow]:
    """Return the versions of these ids."""
    return {
        row.id: row
        for chunk in batched(sorted(set(ids)))
        for row in session.scalars(select(RubricRow).where(RubricRow.id.in_(chunk)))
    }


def page(
    session: Session, *, after: int = 0, limit: int = 50, name: str | None = None, prompt_id: int | None = None
) -> list[RubricRow]:
    """Return up to ``limit`` versions with ids above ``after``, ascending; of one name or prompt."""
    return page_of(session, RubricRow, after, limit, name=name, prompt_id=prompt_id)


def for_prompt(session: Session, prompt_id: int) -> list[RubricRow]:
    """Return the newest version of each rubric of this prompt."""
    newer = aliased(RubricRow)
    superseded = (
        select(newer.id)
        .where(newer.name == RubricRow.name, newer.prompt_id == prompt_id, newer.version > RubricRow.version)
        .exists()
    )
    query = select(RubricRow).where(RubricRow.prompt_id == prompt_id, ~superseded).order_by(RubricRow.id)
    return list(session.scalars(query))


def exist_for(session: Session, prompt_ids: Iterable[int]) -> bool:
    """Return whether any of these prompts has a rubric."""
    return any(
        session.scalar(select(RubricRow.id).where(RubricRow.prompt_id.in_(chunk)).limit(1)) is not None
        for chunk in batched(sorted(set(prompt_ids)))
    )


def judged_required(session: Session, rubric_ids: Iterable[int]) -> list[str]:
    """Return the required criteria of these rubrics that a judge decides, each as "'key' of name@version"."""
    return [
        f"{key!r} of {row.name}@{row.version}"
        for ids in batched(sorted(set(rubric_ids)))
        for row in session.scalars(select(RubricRow).where(RubricRow.id.in_(ids)).order_by(RubricRow.id))
        for key in row.value.judged_required
    ]
