"""Compare two jobs on what both scored, from stored rewards and verdicts. Nothing is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from rubricsvc.core.estimate import Estimate, mean_estimate
from rubricsvc.core.job_comparison import ComparedJob, Difference, JobComparison, LeftOut, Moved, PairedBy
from rubricsvc.errors import InvalidError, needs_extra
from rubricsvc.services.criterion_changes import compare_criteria, largest_changes
from rubricsvc.services.pairing import RewardedPair, ScoredUnit, UnitPair, by_entity, pairs_of, rewarded
from rubricsvc.stats import OnProgress
from rubricsvc.store import completions, items, jobs, prompts, rubrics

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.rubric import Rubric
    from rubricsvc.store.items import ItemReward
    from rubricsvc.store.tables import JobRow, RubricRow

MOST_MOVED = 10
PROMPT_CHARS = 200
_SUBMIT_SAME = (
    "submit the file or the selection of one job again: `rubricsvc jobs submit FILE --judge NAME` to compare judges;"
    " for policies, completions of the same prompts"
)


def compare(
    session: Session,
    a_id: int,
    b_id: int,
    *,
    by: PairedBy | None = None,
    on_progress: OnProgress = lambda done, total, note: None,
) -> JobComparison:
    """Compare job B with job A on the completions that both scored; differences are B less A.

    Without ``by``, completions are paired if any is in both jobs, else prompts: the reward of a prompt is the mean over
    its completions. ``on_progress`` is called with the pairs whose verdicts are read.

    Raises:
        NotFoundError: There is no such job.
        InvalidError: The jobs have no completion and no prompt in common.
        UnavailableError: The extra ``judging`` is not installed.
    """
    a, b = jobs.scoring(session, a_id), jobs.scoring(session, b_id)
    scored_a, scored_b = items.rewards(session, a.id), items.rewards(session, b.id)
    if by is None:
        shared = {item.completion_id for item in scored_a} & {item.completion_id for item in scored_b}
        by = "completion" if shared else "prompt"
    sides = by_entity(scored_a, by), by_entity(scored_b, by)
    both = pairs_of(*sides)
    if not both:
        prompt_ids = ({item.prompt_id for item in scored} for scored in (scored_a, scored_b))
        hint = "pair prompts: --by prompt" if set.intersection(*prompt_ids) else _SUBMIT_SAME
        raise InvalidError(f"jobs {a.id} and {b.id} have no {by} in common", hint=hint, path="by")
    pairs = rewarded(both)
    rows = rubrics.many(session, {one.rubric_id for pair in both for one in pair})
    contents = {rubric_id: row.value for rubric_id, row in rows.items()}
    return JobComparison(
        a=_job(a, scored_a, [one for one, _ in both], [pair.reward_a for pair in pairs], rows),
        b=_job(b, scored_b, [other for _, other in both], [pair.reward_b for pair in pairs], rows),
        paired_by=by,
        differs=_differences(a, b, both, by),
        paired=len(pairs),
        prompts=len({pair.prompt_id for pair in pairs}),
        left_out=_left_out(a.id, b.id, sides, both),
        **_statistics(pairs),
        criteria=compare_criteria(session, pairs, contents, on_progress),
        moved=_moved(session, pairs, contents, by, (a.min_coverage, b.min_coverage)),
    )


def _job(
    job: JobRow,
    scored: Sequence[ItemReward],
    shared: Sequence[ScoredUnit],
    rewards: Sequence[float],
    rows: Mapping[int, RubricRow],
) -> ComparedJob:
    used = [rows[rubric_id] for rubric_id in {one.rubric_id for one in shared}]
    return ComparedJob(
        job_id=job.id,
        name=job.name,
        judge=job.judge.name,
        judge_digest=job.judge.digest,
        rubrics=tuple(sorted(f"{row.name}@{row.version}" for row in used)),
        policies=tuple(sorted({item.policy for one in shared for item in one.items})),
        completions=len(scored),
        rewards=sum(item.reward is not None for item in scored),
        mean_reward=fmean(rewards) if rewards else None,
    )


def _differences(a: JobRow, b: JobRow, both: Sequence[UnitPair], by: PairedBy) -> tuple[Difference, ...]:
    found: list[Difference] = []
    if a.judge.digest != b.judge.digest:
        found.append("judge")
    if a.min_coverage != b.min_coverage:
        found.append("min_coverage")
    if any(one.rubric_id != other.rubric_id for one, other in both):
        found.append("rubrics")
    if by == "prompt":
        policies = ({item.policy for one in side for item in one.items} for side in zip(*both, strict=True))
        same = len({frozenset(names) for names in policies}) == 1
        found.append("completions" if same else "policies")
    return tuple(found)


def _left_out(
    a_id: int, b_id: int, sides: tuple[list[ScoredUnit], list[ScoredUnit]], both: Sequence[UnitPair]
) -> tuple[LeftOut, ...]:
    counts: Counter[tuple[tuple[int, ...], str]] = Counter()
    for lacking, side in ((b_id, sides[0]), (a_id, sides[1])):
        counts[(lacking,), "not_in_job"] = len(side) - len(both)
    for pair in both:
        missing = [(id_, one) for id_, one in zip((a_id, b_id), pair, strict=True) if one.reward is None]
        if missing:
            reason = "unfinished" if any(one.unfinished for _, one in missing) else "no_reward"
            counts[tuple(dict.fromkeys(id_ for id_, _ in missing)), reason] += 1
    return tuple(
        LeftOut.model_validate({"job_ids": job_ids, "reason": reason, "count": count})
        for (job_ids, reason), count in counts.items()
        if count
    )


def _statistics(pairs: Sequence[RewardedPair]) -> dict[str, Estimate]:
    with needs_extra("judging"):
        from rubricsvc.stats.paired import kendall, rank_correlation, spearman, tau_within
    first, second = [pair.reward_a for pair in pairs], [pair.reward_b for pair in pairs]
    prompt_ids = [pair.prompt_id for pair in pairs]
    return {
        "mean_difference": mean_estimate([pair.difference for pair in pairs], prompt_ids),
        "kendall_tau": rank_correlation(kendall, first, second, prompt_ids),
        "spearman": rank_correlation(spearman, first, second, prompt_ids),
        "kendall_tau_within_prompts": tau_within(first, second, prompt_ids),
    }


def _moved(
    session: Session,
    pairs: Sequence[RewardedPair],
    contents: Mapping[int, Rubric],
    by: PairedBy,
    min_coverage: tuple[float | None, float | None],
) -> tuple[Moved, ...]:
    furthest = sorted((pair for pair in pairs if pair.difference), key=lambda pair: -abs(pair.difference))[:MOST_MOVED]
    stored_prompts = {pair.prompt_id: prompts.get(session, pair.prompt_id) for pair in furthest}
    paired = completions.many(session, [pair.a.entity for pair in furthest] if by == "completion" else ())
    return tuple(
        Moved(
            completion_id=pair.a.entity if by == "completion" else None,
            completion_external_id=paired[pair.a.entity][1].id if by == "completion" else None,
            prompt_id=pair.prompt_id,
            prompt_external_id=stored_prompts[pair.prompt_id].external_id,
            policies=tuple(dict.fromkeys(item.policy for one in pair.sides for item in one.items)),
            prompt=" ".join(stored_prompts[pair.prompt_id].value.text[: 2 * PROMPT_CHARS].split())[:PROMPT_CHARS],
            rubric=pair.b.rubric,
            reward_a=pair.reward_a,
            reward_b=pair.reward_b,
            difference=pair.difference,
            criteria=largest_changes(session, pair, contents, min_coverage),
        )
        for pair in furthest
    )
