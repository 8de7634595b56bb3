"""Results of a job so far: rewards, reasons of failures, quotes and votes; or the rubrics that it has generated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, select
from sqlalchemy.orm import Session

from rubricsvc.core.jobs import JobSummary
from rubricsvc.core.panel import voting_summary
from rubricsvc.core.verdict import Reason, Vote
from rubricsvc.store import budgets, generated, verdicts
from rubricsvc.store.ids import existing
from rubricsvc.store.tables import ItemRow, JobRow, VerdictRow


def of_job(session: Session, job_id: int) -> JobSummary:
    """Return the results of a job so far. This reads every verdict of the job; watch `jobs.progress` instead.

    Raises:
        NotFoundError: There is no such job.
    """
    rewards = select(func.count(ItemRow.reward), func.avg(ItemRow.reward)).where(ItemRow.job_id == job_id)
    vetoed = (
        select(ItemRow.vetoed_by, func.count())
        .where(ItemRow.job_id == job_id, ItemRow.vetoed_by.is_not(None))
        .group_by(ItemRow.vetoed_by)
        .order_by(func.count().desc(), ItemRow.vetoed_by)
    )
    behind = verdicts.with_verdicts(select(ItemRow.id).where(ItemRow.job_id == job_id))
    sums: list[Any] = [func.sum(column) for column in (*_cached_tokens(), *verdicts.quote_counts(session))]
    by_reason = behind.with_only_columns(VerdictRow.reason, func.count(), *sums).group_by(VerdictRow.reason)
    count, mean = session.execute(rewards).one()
    rows = session.execute(by_reason).all()
    prompt, cached, quotes, found = (sum(row[number] or 0 for row in rows) for number in range(2, 6))
    job = existing(session, JobRow, "job", job_id)
    judge = job.judge.valid
    return JobSummary(
        rewards=count,
        mean_reward=mean,
        reasons={reason: number for reason, number, *_ in rows if reason is not None},
        vetoed={str(key): number for key, number in session.execute(vetoed)},
        reserved=budgets.reserved_totals(session, job_id),
        cached_share=round(cached / prompt, 4) if prompt else None,
        quotes=int(quotes) or None,
        quotes_not_found=int(quotes - found) if quotes else None,
        generation=generated.summary(session, job),
        voting=voting_summary(judge, _votes(session, behind)) if judge and (judge.members or judge.pairwise) else {},
    )


def _cached_tokens() -> tuple[ColumnElement[float | None], ...]:
    """Return the prompt tokens and the cached ones of a verdict; null where the engine does not count cached ones."""
    prompt, cached = (VerdictRow.details["usage", name].as_float() for name in ("prompt", "cached"))
    return case((cached.is_not(None), prompt)), cached


def budget_message(session: Session, job_id: int) -> str | None:
    """Return the message of one verdict of the job that failed for its budget."""
    with_verdicts = verdicts.with_verdicts(select(ItemRow.id).where(ItemRow.job_id == job_id))
    details = with_verdicts.with_only_columns(VerdictRow.details["detail"].as_string())
    return session.scalar(details.where(VerdictRow.reason == Reason.BUDGET).limit(1))


def _votes(session: Session, query: Select[int]) -> Iterator[tuple[Vote, ...]]:
    for votes in session.scalars(query.with_only_columns(VerdictRow.details["votes"])):
        yield tuple(Vote.model_validate(vote) for vote in votes or ())
