"""How rewards and ranks differ between two versions of a rubric, from stored verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy.orm import Session

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.prompt import Completion
from rubricsvc.core.reward import reward_or_null
from rubricsvc.core.rubric_analysis import ComparedRubric, PairedMetric, RewardChange, RewardChanges
from rubricsvc.errors import InvalidError
from rubricsvc.stats.ranking import concordance, tau_b
from rubricsvc.store import completions, jobs, labels
from rubricsvc.store.session import by_id
from rubricsvc.store.tables import CompletionRow
from workers.scoring.completions import group_questions

if TYPE_CHECKING:
    from rubricsvc.stats.intervals import Ints


def ranks(values: Sequence[float | None]) -> list[int | None]:
    """Return the rank of each value, 1 for the highest; equal values share the smallest rank, None has none."""
    ordered = sorted((value for value in values if value is not None), reverse=True)
    return [None if value is None else ordered.index(value) + 1 for value in values]


def reward_changes(session: Session, job_id: int, old: ComparedRubric, new: ComparedRubric) -> RewardChanges:
    """Compare two rubric versions on a job's completions; no judge is asked, and nothing is written."""
    before, after = _stored_rewards(session, job_id, old, new), _stored_rewards(session, job_id, new, old)
    prompt_ids = {row.prompt_id for row in (old, new)} - {None}
    by_prompt: dict[int, list[int]] = {}
    for id_, stored in before.items():
        if id_ in after and prompt_ids <= {stored.prompt_id}:
            by_prompt.setdefault(stored.prompt_id, []).append(id_)
    if not by_prompt:
        raise InvalidError(
            f"job {job_id} has no completion of the prompt of {old.ref} and {new.ref}",
            hint=f"see `rubricsvc completions show` and `rubricsvc rubrics show {old.name}`",
        )
    rows, pairs = [], []
    for prompt_id, ids in by_prompt.items():
        first, second = ([rewards[id_].value for id_ in ids] for rewards in (before, after))
        for id_, a, b, rank_a, rank_b in zip(ids, first, second, ranks(first), ranks(second), strict=True):
            change = round(b - a, 12) + 0.0 if a is not None and b is not None else None  # + 0.0: no -0.0
            rows.append(
                RewardChange(
                    completion_id=id_,
                    completion_external_id=before[id_].external_id,
                    prompt_id=prompt_id,
                    old_reward=a,
                    new_reward=b,
                    old_rank=rank_a,
                    new_rank=rank_b,
                    change=change,
                )
            )
        pairs.append([(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None])
    paired = [
        (row.completion_id, row.prompt_id, row.old_reward, row.new_reward)
        for row in rows
        if row.old_reward is not None and row.new_reward is not None
    ]
    place = {id_: number for number, (id_, *_) in enumerate(paired)}
    given = labels.overall_labels(session, job_id)
    people = []
    if scores := [(place[id_], person, score) for id_, person, score in given if id_ in place]:
        _, prompts, old_rewards, new_rewards = zip(*paired, strict=True)
        people = [people_agreement(old_rewards, new_rewards, prompts, scores)]
    ranked = [(row.old_rank, row.new_rank) for row in rows if None not in (row.old_rank, row.new_rank)]
    return RewardChanges(
        completions=len(rows),
        mean_change=fmean(changes) if (changes := [row.change for row in rows if row.change is not None]) else None,
        changed_ranks=sum(a != b for a, b in ranked) if ranked else None,
        kendall_tau_within_prompts=tau_b(map(concordance, pairs)),
        old_missing_verdicts=sum(before[row.completion_id].missing for row in rows),
        new_missing_verdicts=sum(after[row.completion_id].missing for row in rows),
        people=tuple(people),
        by_completion=tuple(rows),
    )


def people_agreement(
    old: Sequence[float], new: Sequence[float], prompts: Sequence[int], labels: Sequence[tuple[int, str, float]]
) -> PairedMetric:
    """Return how far two rewards [N] agree with people's overall scores, ``labels`` as (row, person, score).

    ``preference_accuracy`` is the share of the pairs of completions of one prompt to which one person gave different
    scores that the rewards order alike; equal ones count half. Where all completions have one prompt, intervals draw
    completions.
    """
    import numpy as np

    from rubricsvc.stats import MIN_PAIRS
    from rubricsvc.stats.intervals import bootstrap
    from rubricsvc.stats.paired import differences, ordered, preference_pairs

    of = np.asarray(prompts)
    pairs = preference_pairs(labels, of)
    margins = differences(np.column_stack([old, new]).astype(float), pairs)
    units = (of if len(of) and np.ptp(of) > 0 else np.arange(len(of)))[pairs[:, 0]]

    def measure(drawn: Ints) -> dict[str, float]:
        a, b = ordered(margins[drawn]).mean(0).tolist()
        return {"old": a, "new": b, "difference": b - a}

    if len(units) < MIN_PAIRS:
        none = Estimate(None, null_reason=f"{len(units)} pairs with people's scores; an estimate needs {MIN_PAIRS}")
        return PairedMetric(n=len(units), old=none, new=none, difference=none)
    found = bootstrap(measure, units)
    return PairedMetric(n=len(units), old=found["old"], new=found["new"], difference=found["difference"])


class _Stored(NamedTuple):
    external_id: str | None
    prompt_id: int
    value: float | None
    missing: int


def _stored_rewards(session: Session, job_id: int, row: ComparedRubric, other: ComparedRubric) -> dict[int, _Stored]:
    """Return the rewards under a rubric version by completion id, from the stored verdicts of the job's judge.

    Of the completions that `jobs.rescore` would score under it, which are a comparative judge's groups: those that the
    job scored under a version of it, or else of the ``other`` rubric, or else all.
    """
    scored = (jobs.completion_ids(session, job_id, rubric=name) for name in (row.name, other.name, None))
    stored = by_id(session, CompletionRow, next(filter(None, scored), ()))
    rows = {id_: (row.prompt_id, row.value) for id_, row in stored.items()}
    job, rubric = jobs.scoring(session, job_id), row.rubric
    judge = job.judge.value
    groups: dict[int, list[Completion]] = {}
    for prompt_id, completion in rows.values():
        groups.setdefault(prompt_id, []).append(completion)
    shared = {prompt_id: group_questions(rubric, judge, group) for prompt_id, group in groups.items()}
    alone = judge.mode != "comparative"
    asked = [
        (id_, group_questions(rubric, judge, [one]) if alone else shared[name]) for id_, (name, one) in rows.items()
    ]
    known = completions.known_verdicts(session, asked)
    return {
        id_: _Stored(
            completion.id,
            prompt_id,
            reward_or_null(rubric, answered.values(), min_coverage=job.min_coverage).value,
            len(rubric.criteria) - len(answered),
        )
        for (id_, (prompt_id, completion)), answered in zip(rows.items(), known, strict=True)
    }
