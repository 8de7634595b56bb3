"""Many prompts and rubrics at once: a few statements for a batch, in place of several for each record.

What needs more thought than an insert (a name that exists, a prompt with another id) is left to `prompts.add` and
`rubrics.add`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import APPROVED, RubricOrigin
from rubricsvc.store.tables import PromptRow, RubricRow
from rubricsvc.store.upsert import add_new

PromptKey = tuple[str, str | None]
"""The digest and the external id of a prompt."""


def add_prompts(session: Session, given: Iterable[tuple[Prompt, str | None]]) -> dict[PromptKey, int]:
    """Add the prompts that are new; return the ids of those that need no further id of a file."""
    first: dict[str, tuple[Prompt, str | None]] = {}
    keys: dict[PromptKey, None] = {}
    for prompt, external_id in given:
        if external_id is None or 0 < len(external_id) <= MAX_NAME_LENGTH:
            first.setdefault(prompt.digest, (prompt, external_id))
            keys[prompt.digest, external_id] = None
    if not first:
        return {}
    rows = [
        {"digest": digest, "external_id": external_id, "content": prompt.model_dump(mode="json")}
        for digest, (prompt, external_id) in first.items()
    ]
    add_new(session, PromptRow, rows)
    stored = {
        digest: (id_, external_id)
        for id_, digest, external_id in session.execute(
            select(PromptRow.id, PromptRow.digest, PromptRow.external_id).where(PromptRow.digest.in_(first))
        )
    }
    return {
        (digest, external_id): stored[digest][0]
        for digest, external_id in keys
        if external_id in (None, stored[digest][1])
    }


def add_rubrics(
    session: Session, given: Sequence[tuple[Rubric, str, int | None]], *, origin: RubricOrigin, added_by: str | None
) -> dict[tuple[str, str], int]:
    """Add approved rubrics, each with its name and prompt, whose names are new; return their ids by name and digest.

    The caller has checked the formulas.
    """
    count = Counter(name for _, name, _ in given)
    names = [name for name in count if _is_name(name)]
    known = set(session.scalars(select(RubricRow.name).where(RubricRow.name.in_(names))))
    rows = [
        {
            "name": name,
            "version": 1,
            "digest": rubric.digest,
            "prompt_id": prompt_id,
            "origin": origin,
            "state": APPROVED,
            "parent_id": None,
            "added_by": added_by,
            "content": rubric.model_dump(mode="json"),
        }
        for rubric, name, prompt_id in given
        if count[name] == 1 and _is_name(name) and name not in known
    ]
    if not rows:
        return {}
    add_new(session, RubricRow, rows)
    digests = {row["name"]: row["digest"] for row in rows}
    found = session.execute(select(RubricRow.id, RubricRow.name, RubricRow.digest).where(RubricRow.name.in_(digests)))
    return {(name, digest): id_ for id_, name, digest in found if digests[name] == digest}


def _is_name(name: str) -> bool:
    return (
        0 < len(name) <= MAX_NAME_LENGTH
        and name.isprintable()
        and name == name.strip()
        and "@" not in name
        and not name.isdecimal()
    )
