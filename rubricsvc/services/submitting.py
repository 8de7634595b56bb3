"""Submit completions for scoring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rubricsvc.services.selecting import Selection, select, veto_warning
from rubricsvc.store import jobs, judges, rubrics
from rubricsvc.store.session import PUBLISHED

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.services.importing import ImportResult


@dataclass(frozen=True, slots=True)
class Submission:
    """A job, whether it ``is_new``, what it scores, and a warning about required criteria."""

    job_id: int
    is_new: bool
    selection: Selection
    warning: str | None


def submit(
    session: Session,
    judge_ref: str,
    imported: ImportResult | None = None,
    *,
    rubric: str | None = None,
    policy: str | None = None,
    limit: int | None = None,
    key: str | None = None,
    name: str = "",
    budget: float | None = None,
) -> Submission:
    """Submit selected completions to a judge; the same judge, completions and rubrics give the same job.

    Args:
        session: a session to write in.
        judge_ref: name or id of the judge.
        imported: score the completions of this import; all stored ones by default.
        rubric: score by this rubric; by default by all rubrics of each prompt.
        policy: score the completions of this policy.
        limit: maximum number of completions.
        key: idempotency key.
        name: name of the job.
        budget: maximum cost in US dollars.

    Raises:
        NotFoundError: no such judge or rubric.
        InvalidError: no completion has a rubric, or a budget is given for a judge without a price.
        ConflictError: the key belongs to another job.
    """
    judge = judges.get(session, judge_ref)
    selection = select(session, imported, rubric=rubric, policy=policy, limit=limit)
    warning = None
    if judge.value.mode == "comparative":
        required = rubrics.judged_required(session, (rubric_id for _, rubric_id in selection.pairs))
        warning = veto_warning(judge.value, required)
    job = jobs.submit(session, judge_id=judge.id, items=selection.pairs, key=key, name=name, budget=budget)
    return Submission(job.id, PUBLISHED in session.info, selection, warning)  # only a new job is published
