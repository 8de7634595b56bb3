"""Verdicts: written in bulk, found by what they came from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, select, tuple_
from sqlalchemy.orm import Session

from rubricsvc.core.verdict import Verdict
from rubricsvc.store.tables import ItemRow, VerdictRow
from rubricsvc.store.upsert import batched, insert_rows

Origin = tuple[int, str]
"""(completion id, fingerprint): what, with a criterion, names a verdict."""

_OWN_COLUMNS = {"criterion", "outcome", "value", "reason", "sample", "fingerprint"}


def settled(session: Session, origins: Iterable[Origin]) -> dict[Origin, list[Verdict]]:
    """What is known already and need not be asked again: the scored and abstained verdicts of these origins."""
    found: dict[Origin, list[Verdict]] = {}
    for chunk in batched(origins):
        query = select(VerdictRow).where(
            tuple_(VerdictRow.completion_id, VerdictRow.fingerprint).in_(chunk), VerdictRow.outcome != "failed"
        )
        for row in session.scalars(query):
            found.setdefault((row.completion_id, row.fingerprint), []).append(row.verdict)
    return found


def write(session: Session, verdicts: Iterable[tuple[Origin, int, int, Verdict]]) -> set[tuple[Origin, str]]:
    """Keep (origin, rubric id, judge id, verdict) in bulk; the (origin, criterion) pairs that were kept.

    A settled verdict stays (ON CONFLICT DO NOTHING); a failed one is replaced, and its attempts are counted.
    """
    kept: set[tuple[Origin, str]] = set()
    for chunk in batched(verdicts):
        new, parameters = insert_rows(session, VerdictRow, [_columns(*row) for row in chunk])
        changed = {name: new.excluded[name] for name in ("outcome", "value", "reason", "details", "created_at")}
        statement = new.on_conflict_do_update(
            index_elements=["completion_id", "fingerprint", "criterion", "sample"],
            set_={**changed, "attempts": VerdictRow.attempts + 1},
            where=VerdictRow.outcome == "failed",
        ).returning(VerdictRow.completion_id, VerdictRow.fingerprint, VerdictRow.criterion)
        for completion_id, fingerprint, criterion in session.execute(statement, parameters):
            kept.add(((completion_id, fingerprint), criterion))
    return kept


def _columns(origin: Origin, rubric_id: int, judge_id: int, verdict: Verdict) -> dict[str, Any]:
    return {
        "completion_id": origin[0],
        "fingerprint": origin[1],
        "rubric_id": rubric_id,
        "judge_id": judge_id,
        "criterion": verdict.criterion,
        "outcome": verdict.outcome,
        "value": verdict.value,
        "reason": verdict.reason,
        "sample": verdict.sample,
        "details": verdict.model_dump(mode="json", exclude=_OWN_COLUMNS, exclude_defaults=True),
    }


def behind_item() -> ColumnElement[bool]:
    """The join of an item to the verdicts that its reward was folded from."""
    return (VerdictRow.completion_id == ItemRow.completion_id) & (VerdictRow.fingerprint == ItemRow.fingerprint)


def for_items(session: Session, item_ids: Iterable[int]) -> dict[int, list[Verdict]]:
    """The verdicts behind each item's reward; an item that was never scored has none."""
    found: dict[int, list[Verdict]] = {}
    for chunk in batched(item_ids):
        query = (
            select(ItemRow.id, VerdictRow)
            .join(VerdictRow, behind_item())
            .where(ItemRow.id.in_(chunk))
            .order_by(VerdictRow.id)
        )
        for item_id, row in session.execute(query):
            found.setdefault(item_id, []).append(row.verdict)
    return found


def page(
    session: Session,
    *,
    job_id: int | None = None,
    completion_id: int | None = None,
    outcome: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[VerdictRow]:
    """Up to ``limit`` verdicts with ids above ``after``, ascending; of one job, completion or outcome, where asked."""
    query = select(VerdictRow).where(VerdictRow.id > after).order_by(VerdictRow.id).limit(limit)
    if job_id is not None:
        query = query.where(
            tuple_(VerdictRow.completion_id, VerdictRow.fingerprint).in_(
                select(ItemRow.completion_id, ItemRow.fingerprint).where(ItemRow.job_id == job_id)
            )
        )
    if completion_id is not None:
        query = query.where(VerdictRow.completion_id == completion_id)
    if outcome is not None:
        query = query.where(VerdictRow.outcome == outcome)
    return list(session.scalars(query))
