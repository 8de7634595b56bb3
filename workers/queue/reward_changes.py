"""How rewards and ranks differ between two versions of a rubric, from stored verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from sqlalchemy.orm import Session

from rubricsvc.errors import InvalidError
from rubricsvc.stats.ranking import kendall_tau, ranks
from rubricsvc.store.tables import RubricRow
from workers.queue.rescoring import StoredReward, stored_rewards


@dataclass(frozen=True, slots=True)
class RewardChange:
    """One completion under both versions. Ranks are among the job's completions of the prompt, 1 for the best."""

    completion_id: int
    prompt_id: int
    old_reward: float | None
    new_reward: float | None
    old_rank: int | None
    new_rank: int | None

    @property
    def change(self) -> float | None:
        """The new reward less the old one, to 12 decimals."""
        if self.old_reward is None or self.new_reward is None:
            return None
        return round(self.new_reward - self.old_reward, 12) + 0.0  # + 0.0: no -0.0


@dataclass(frozen=True, slots=True)
class RewardChanges:
    """All completions of a job under two versions.

    Attributes:
        kendall_tau: Tau-b between the two rankings, over the pairs of completions of one prompt.
        old_missing: Verdicts of the old version that are not stored; `new_missing` those of the new one.
    """

    completions: Sequence[RewardChange]
    kendall_tau: float | None
    old_missing: int
    new_missing: int

    @property
    def mean_change(self) -> float | None:
        """The mean change of the completions that have both rewards."""
        known = [one.change for one in self.completions if one.change is not None]
        return fmean(known) if known else None

    @property
    def changed_ranks(self) -> int:
        """How many completions have another rank."""
        return sum(one.old_rank != one.new_rank for one in self.completions)

    @property
    def summary(self) -> dict[str, Any]:
        """The figures over all completions."""
        return {
            "completions": len(self.completions),
            "mean_change": self.mean_change,
            "changed_ranks": self.changed_ranks,
            "kendall_tau": self.kendall_tau,
            "old_missing_verdicts": self.old_missing,
            "new_missing_verdicts": self.new_missing,
        }


def reward_changes(session: Session, job_id: int, old: RubricRow, new: RubricRow) -> RewardChanges:
    """Compare two rubric versions on a job's completions; no judge is asked, and nothing is written.

    Raises:
        InvalidError: No completion of the job belongs to the prompt of both rubrics.
    """
    before, after = (stored_rewards(session, job_id, row.value) for row in (old, new))
    prompt_ids = {row.prompt_id for row in (old, new)} - {None}
    by_prompt: dict[int, list[int]] = {}
    for id_, one in before.items():
        if prompt_ids <= {one.prompt_id}:
            by_prompt.setdefault(one.prompt_id, []).append(id_)
    if not by_prompt:
        raise InvalidError(
            f"job {job_id} has no completion of the prompt of {old.name}@{old.version} and {new.name}@{new.version}",
            hint=f"see `rubricsvc completions list` and `rubricsvc rubrics show {old.name}`",
        )
    groups = [
        _changes(prompt_id, ids, [before[id_] for id_ in ids], [after[id_] for id_ in ids])
        for prompt_id, ids in by_prompt.items()
    ]
    compared = [id_ for ids in by_prompt.values() for id_ in ids]
    pairs = [
        [(one.old_reward, one.new_reward) for one in group if one.old_reward is not None and one.new_reward is not None]
        for group in groups
    ]
    return RewardChanges(
        completions=[one for group in groups for one in group],
        kendall_tau=kendall_tau(pairs),
        old_missing=sum(before[id_].missing for id_ in compared),
        new_missing=sum(after[id_].missing for id_ in compared),
    )


def _changes(
    prompt_id: int, ids: Sequence[int], before: Sequence[StoredReward], after: Sequence[StoredReward]
) -> list[RewardChange]:
    old, new = ([one.reward.value for one in rewards] for rewards in (before, after))
    return [
        RewardChange(id_, prompt_id, old_reward, new_reward, old_rank, new_rank)
        for id_, old_reward, new_reward, old_rank, new_rank in zip(ids, old, new, ranks(old), ranks(new), strict=True)
    ]
