"""What the jobs that generate rubrics have made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from rubricsvc.core.generation import GenerationSummary
from rubricsvc.core.states import APPROVED
from rubricsvc.store import replies
from rubricsvc.store.tables import DONE, FAILED, GENERATE, ItemRow, JobRow, RubricRow


def researched_in(session: Session, collection: str) -> Iterator[RubricRow]:
    """Yield the rubrics that were generated from documents of a collection, oldest first."""
    name = RubricRow.provenance["research"]["collection"].as_string()
    yield from session.scalars(select(RubricRow).where(name == collection).order_by(RubricRow.id))


def summary(session: Session, job: JobRow) -> GenerationSummary | None:
    """Return the results of a job so far; None if it scores completions."""
    if job.kind != GENERATE:
        return None
    of_job = ItemRow.job_id == job.id
    made = select(RubricRow.state, RubricRow.content, RubricRow.provenance)
    rows = session.execute(made.join(ItemRow, ItemRow.rubric_id == RubricRow.id).where(of_job, ItemRow.state == DONE))
    sums: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    empty: list[float] = []
    for state, content, provenance in rows:
        made_by = provenance or {}
        gate: dict[str, Any] = made_by.get("gate") or {}
        refused.update(gate.get("refused_by", ()))
        sums["rubrics"] += 1
        sums["drafts"] += state != APPROVED
        sums["checks"] += sum(criterion["check"] is not None for criterion in content["criteria"])
        sums["negatives"] += sum(criterion["weight"] < 0 for criterion in content["criteria"])
        for name in ("repairs", "redraws"):
            sums[name] += made_by.get(name, 0)
        reward = gate.get("probes", {}).get("empty", {}).get("reward")
        empty += [reward] if reward is not None else []
    reasons: Counter[str] = Counter()
    failed = select(ItemRow.null_reason, ItemRow.redraws, ItemRow.repairs).where(of_job, ItemRow.state == FAILED)
    for reason, redraws, repairs in session.execute(failed):
        reasons[(reason or "unknown").partition(":")[0]] += 1
        sums.update(redraws=redraws or 0, repairs=repairs or 0)
    judge = job.judge.valid
    return GenerationSummary(
        prompts=session.scalar(select(func.count()).where(of_job)) or 0,
        **{name: sums[name] for name in ("rubrics", "drafts", "checks", "negatives", "repairs", "redraws")},
        refused_by=dict(refused.most_common()),
        empty_reward_max=max(empty, default=None),
        reasons=dict(reasons.most_common()),
        cost=None if judge is None or (judge.unpriced and not job.spent) else round(job.spent, 6),
        asked_again=replies.asked_again(session, replies.OF_ITEM, select(ItemRow.id).where(of_job)),
    )
