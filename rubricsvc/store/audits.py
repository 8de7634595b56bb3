"""Audits: what attacks on a judge came to, kept with the judge. The newest one counts."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from rubricsvc.core.audit import Audit
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.store.tables import AuditRow, CompletionRow, ItemRow, PromptRow, RubricRow


def add(session: Session, judge_id: int, audit: Audit) -> AuditRow:
    """Keep an audit of a judge that is there."""
    content = audit.model_dump(mode="json")
    row = AuditRow(judge_id=judge_id, digest=audit.digest, passed=audit.passed, content=content)
    session.add(row)
    session.flush()
    return row


def newest(session: Session, judge_ids: Collection[int]) -> dict[int, AuditRow]:
    """The newest audit of each judge that has one, by the judge's id."""
    last = select(func.max(AuditRow.id)).where(AuditRow.judge_id.in_(judge_ids)).group_by(AuditRow.judge_id)
    rows = session.scalars(select(AuditRow).where(AuditRow.id.in_(last)))
    return {row.judge_id: row for row in rows}


def page(session: Session, judge_id: int, *, after: int = 0, limit: int = 50) -> list[AuditRow]:
    """Up to ``limit`` audits of a judge with ids above ``after``, oldest first."""
    query = select(AuditRow).where(AuditRow.judge_id == judge_id, AuditRow.id > after)
    return list(session.scalars(query.order_by(AuditRow.id).limit(limit)))


def tasks_of_job(session: Session, job_id: int) -> list[tuple[Prompt, Rubric]]:
    """Return the prompts and rubrics of a job's items, each pair once."""
    places = select(CompletionRow.prompt_id, ItemRow.rubric_id).join(ItemRow, ItemRow.completion_id == CompletionRow.id)
    pairs = places.where(ItemRow.job_id == job_id).distinct().subquery()
    query = select(PromptRow, RubricRow).join(pairs, pairs.c.prompt_id == PromptRow.id)
    query = query.join(RubricRow, RubricRow.id == pairs.c.rubric_id).order_by(PromptRow.id, RubricRow.id)
    return [(prompt.value, rubric.value) for prompt, rubric in session.execute(query)]
