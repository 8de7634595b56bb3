"""Audits of judges, and what to ask in one. The newest audit of a judge counts."""

from __future__ import annotations

import random
from collections.abc import Collection
from datetime import datetime
from itertools import groupby

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from rubricsvc.core.audit import Audit
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.store.ids import page_of
from rubricsvc.store.tables import AuditRow, CompletionRow, ItemRow, PromptRow, RubricRow


def add(session: Session, judge_id: int, audit: Audit, *, created_at: datetime | None = None) -> AuditRow:
    """Store an audit of a judge, of now by default."""
    content = audit.model_dump(mode="json")
    row = AuditRow(judge_id=judge_id, digest=audit.digest, passed=audit.passed, content=content)
    if created_at is not None:
        row.created_at = created_at
    session.add(row)
    session.flush()
    return row


def newest(session: Session, judge_ids: Collection[int]) -> dict[int, AuditRow]:
    """Return the newest audit of each judge that has one, by the judge's id."""
    last = select(func.max(AuditRow.id)).where(AuditRow.judge_id.in_(judge_ids)).group_by(AuditRow.judge_id)
    rows = session.scalars(select(AuditRow).where(AuditRow.id.in_(last)))
    return {row.judge_id: row for row in rows}


def page(session: Session, judge_id: int, *, after: int = 0, limit: int = 50) -> list[AuditRow]:
    """Return up to ``limit`` audits of a judge with ids above ``after``, oldest first."""
    return page_of(session, AuditRow, after, limit, judge_id=judge_id)


def tasks_of_job(session: Session, job_id: int) -> list[tuple[Prompt, Rubric]]:
    """Return the prompts and rubrics of a job's items, each pair once."""
    places = select(CompletionRow.prompt_id, ItemRow.rubric_id).join(ItemRow, ItemRow.completion_id == CompletionRow.id)
    pairs = places.where(ItemRow.job_id == job_id).distinct().subquery()
    query = select(PromptRow, RubricRow).join(pairs, pairs.c.prompt_id == PromptRow.id)
    query = query.join(RubricRow, RubricRow.id == pairs.c.rubric_id).order_by(PromptRow.id, RubricRow.id)
    return [(prompt.value, rubric.value) for prompt, rubric in session.execute(query)]


def sample_of_job(
    session: Session, job_id: int, limit: int, *, whole_groups: bool = False, seed: int = 0
) -> list[tuple[Rubric, Prompt, Completion]]:
    """Return a random sample of a job's completions with their rubrics and prompts.

    Args:
        session: The session.
        job_id: The job.
        limit: The maximum number of completions.
        whole_groups: Take all completions of a prompt under a rubric together; the first group even above the limit.
        seed: The seed of the sample.
    """
    query = select(CompletionRow.prompt_id, ItemRow.rubric_id, ItemRow.completion_id).join(
        ItemRow, ItemRow.completion_id == CompletionRow.id
    )
    places = sorted((p, r, c) for p, r, c in session.execute(query.where(ItemRow.job_id == job_id)))
    groups = [list(g) for _, g in groupby(places, key=lambda p: p[:2])] if whole_groups else [[p] for p in places]
    random.Random(seed).shuffle(groups)
    taken: list[tuple[int, int, int]] = []
    for group in groups:
        if not taken or len(taken) + len(group) <= limit:
            taken += group
    prompts, rubrics = ({row[i] for row in taken} for i in (0, 1))
    prompt_of = {row.id: row.value for row in session.scalars(select(PromptRow).where(PromptRow.id.in_(prompts)))}
    rubric_of = {row.id: row.value for row in session.scalars(select(RubricRow).where(RubricRow.id.in_(rubrics)))}
    completions = session.scalars(select(CompletionRow).where(CompletionRow.id.in_({row[2] for row in taken})))
    completion_of = {row.id: row.value for row in completions}
    return [(rubric_of[r], prompt_of[p], completion_of[c]) for p, r, c in taken]
