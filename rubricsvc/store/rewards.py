"""Rewards of items: computed from stored verdicts, and computed again where those or the job's options change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Select, select, tuple_, update
from sqlalchemy.orm import Session, aliased

from rubricsvc.core.reward import reward_or_null
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.store import verdicts
from rubricsvc.store.tables import (
    DONE,
    FAILED,
    CompletionRow,
    ItemRow,
    JobRow,
    JudgeRow,
    PromptRow,
    QuestionRow,
    RolloutRow,
    RubricRow,
)
from rubricsvc.store.upsert import batched
from rubricsvc.store.verdicts import Name

REASON_CHARS = 300
"""Characters kept of a ``null_reason``."""


def columns(rubric: Rubric, final: Collection[Verdict], min_coverage: float | None) -> dict[str, object]:
    """Return the columns of a scored item: its reward and state. ``min_coverage`` is the job's own, if it has one."""
    reward = reward_or_null(rubric, final, min_coverage=min_coverage)
    failed = sum(verdict.outcome == "failed" for verdict in final)
    return {
        "state": FAILED if failed else DONE,
        "reward": reward.value,
        "coverage": reward.coverage,
        "formula": reward.formula,
        "vetoed_by": reward.vetoed_by,
        "null_reason": (reward.null_reason or "")[:REASON_CHARS] or None,
        "verdicts": len(final),
        "failed_verdicts": failed,
    }


def of_prompts(
    session: Session, prompts: Iterable[str], *, policy: str, judge: str
) -> dict[tuple[str, str], list[float]]:
    """Return the stored rewards of a policy's completions by the digests of prompt and rubric.

    They are those of the rollouts of runs, and for prompts without any those of the newest jobs.

    Args:
        session: The session.
        prompts: Digests of prompts.
        policy: Name of the policy.
        judge: Digest of the judge.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for chunk in batched(sorted(set(prompts))):
        sampled = _rewards_of(RolloutRow, chunk, policy, judge)
        for prompt, rubric, _, reward in session.execute(sampled.order_by(RolloutRow.id)):
            found.setdefault((prompt, rubric), []).append(reward)
        scored: dict[tuple[str, str], dict[int, float]] = {}
        for prompt, rubric, completion, reward in session.execute(
            _rewards_of(ItemRow, chunk, policy, judge).order_by(ItemRow.id)
        ):
            scored.setdefault((prompt, rubric), {})[completion] = reward
        found |= {key: list(rewards.values()) for key, rewards in scored.items() if key not in found}
    return found


def _rewards_of(table: Any, prompts: Sequence[str], policy: str, judge: str) -> Select[Any]:
    return (
        select(PromptRow.digest, RubricRow.digest, CompletionRow.id, table.reward)
        .select_from(table)
        .join(CompletionRow, CompletionRow.id == table.completion_id)
        .join(PromptRow, PromptRow.id == CompletionRow.prompt_id)
        .join(RubricRow, RubricRow.id == table.rubric_id)
        .join(JudgeRow, JudgeRow.id == table.judge_id)
        .where(
            PromptRow.digest.in_(prompts),
            CompletionRow.policy == policy,
            JudgeRow.digest == judge,
            table.reward.is_not(None),
        )
    )


def recompute(session: Session, replaced: Sequence[Name]) -> set[int]:
    """Recompute the rewards of failed items whose failed verdicts were replaced; return their jobs.

    An item's reward is always that of the verdicts that are read for it. So this waits for a transaction that replaces
    another verdict of the same item.
    """
    repaired: set[int] = set()
    for chunk in batched(replaced):
        sharing = (
            select(ItemRow.id)
            .join(QuestionRow, QuestionRow.question_set == ItemRow.question_set)
            .where(ItemRow.state == FAILED, tuple_(ItemRow.completion_id, QuestionRow.fingerprint).in_(chunk))
        )
        locked = (
            select(ItemRow.id, ItemRow.job_id, ItemRow.rubric_id, JobRow.min_coverage)
            .join(JobRow, JobRow.id == ItemRow.job_id)
            .where(ItemRow.id.in_(sharing), ItemRow.state == FAILED)
            .order_by(ItemRow.id)
            .with_for_update(of=ItemRow)
        )
        items = session.execute(locked).all()
        rubrics = _rubrics(session, (item.rubric_id for item in items))
        current = verdicts.for_items(session, [item.id for item in items])
        rows = [
            {"id": item.id, **columns(rubrics[item.rubric_id], current[item.id], item.min_coverage)} for item in items
        ]
        if rows:
            session.execute(update(ItemRow), rows)
            repaired |= {item.job_id for item in items}
    return repaired


def copy(session: Session, from_job: int, to_job: int) -> None:
    """Compute the rewards of a new job's items from the verdicts of another job on the same completions and rubrics.

    Failed verdicts are taken over too, so that no judge is asked. What the other job has not scored stays pending.
    """
    source = aliased(ItemRow)
    same = (source.completion_id == ItemRow.completion_id) & (source.rubric_id == ItemRow.rubric_id)
    pairs = (
        select(ItemRow.id, ItemRow.rubric_id, source.id.label("source_id"), source.question_set)
        .join(source, same)
        .where(ItemRow.job_id == to_job, source.job_id == from_job, source.question_set.is_not(None))
    )
    least = session.get_one(JobRow, to_job).min_coverage
    for chunk in batched(session.execute(pairs).all()):
        rubrics = _rubrics(session, (row.rubric_id for row in chunk))
        found = verdicts.for_items(session, [row.source_id for row in chunk])
        rows = [
            {
                "id": row.id,
                "question_set": row.question_set,
                **columns(rubrics[row.rubric_id], found[row.source_id], least),
            }
            for row in chunk
        ]
        session.execute(update(ItemRow), rows)


def _rubrics(session: Session, ids: Iterable[int]) -> Mapping[int, Rubric]:
    return {id_: session.get_one(RubricRow, id_).value for id_ in set(ids)}
