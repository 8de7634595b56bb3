"""Compare two jobs on what both scored, from stored rewards and verdicts. Nothing is written."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rubricsvc.core.estimate import mean_estimate
from rubricsvc.core.reward import reward_or_null
from rubricsvc.errors import InvalidError, needs_extra
from rubricsvc.schemas.jobs import (
    ComparedJob,
    CriterionChange,
    CriterionComparison,
    Difference,
    JobComparison,
    LeftOut,
    Moved,
    PairedBy,
)
from rubricsvc.store import items, jobs, prompts, rubrics, verdicts

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.rubric import Criterion, Rubric
    from rubricsvc.stats import OnProgress
    from rubricsvc.store.items import ItemReward

T = TypeVar("T")

MOST_MOVED = 10
MOST_CRITERIA = 3
PROMPT_CHARS = 200
PAIRS_PER_PAGE = 200
_SUBMIT_SAME = (
    "submit the file or the selection of one job again: `rubricsvc jobs submit FILE --judge NAME` to compare judges;"
    " for policies, completions of the same prompts"
)


class ScoredUnit(NamedTuple):
    """What one job scored under one rubric version: a completion, or the completions of a prompt."""

    entity: int
    rubric_id: int
    rubric: str
    items: list[ItemReward]
    reward: float | None
    """The mean over the items; None where none has a reward."""


class RewardedPair(NamedTuple):
    """The same completion or prompt in both jobs, with a reward on both sides; ``difference`` is that of B less A."""

    a: ScoredUnit
    b: ScoredUnit
    prompt_id: int
    reward_a: float
    reward_b: float
    difference: float


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
    its completions. What both scored under the same version is paired first, then under one rubric name, then under any
    rubric. ``on_progress`` is called with the pairs whose verdicts are read.

    Raises:
        NotFoundError: There is no such job.
        InvalidError: The jobs have no completion and no prompt in common.
        UnavailableError: The extra ``judging`` is not installed.
    """
    with needs_extra("judging"):
        from rubricsvc.stats.paired import rank_correlation, tau_within

    a, b = jobs.scoring(session, a_id), jobs.scoring(session, b_id)
    scored = items.rewards(session, a.id), items.rewards(session, b.id)
    if by is None:
        by = "completion" if set.intersection(*({item.completion_id for item in one} for one in scored)) else "prompt"
    sides = _units(scored[0], by), _units(scored[1], by)
    both = matched(*sides, attrgetter("entity", "rubric_id"), attrgetter("entity", "rubric"), attrgetter("entity"))
    if not both:
        asked = set.intersection(*({item.prompt_id for item in one} for one in scored))
        hint = "pair prompts: --by prompt" if asked else _SUBMIT_SAME
        raise InvalidError(f"jobs {a.id} and {b.id} have no {by} in common", hint=hint, path="by")
    pairs = [
        RewardedPair(one, other, one.items[0].prompt_id, x, y, round(y - x, 12) + 0.0)  # + 0.0: no -0.0
        for one, other in both
        if (x := one.reward) is not None and (y := other.reward) is not None
    ]
    rows = rubrics.many(session, {one.rubric_id for pair in both for one in pair})
    contents = {rubric_id: row.value for rubric_id, row in rows.items()}
    prompt_ids, rewards = [pair.prompt_id for pair in pairs], ([p.reward_a for p in pairs], [p.reward_b for p in pairs])
    compared = [
        ComparedJob(
            job_id=job.id,
            name=job.name,
            judge=job.judge.name,
            judge_digest=job.judge.digest,
            rubrics=tuple(sorted({rows[one.rubric_id].ref for one in shared})),
            policies=tuple(sorted({item.policy for one in shared for item in one.items})),
            completions=len(all_of),
            rewards=sum(item.reward is not None for item in all_of),
            mean_reward=fmean(of_pairs) if of_pairs else None,
        )
        for job, all_of, shared, of_pairs in zip((a, b), scored, zip(*both, strict=True), rewards, strict=True)
    ]
    policies = [{item.policy for one in side for item in one.items} for side in zip(*both, strict=True)]
    differs: dict[Difference, bool] = {
        "judge": a.judge.digest != b.judge.digest,
        "min_coverage": a.min_coverage != b.min_coverage,
        "rubrics": any(one.rubric_id != other.rubric_id for one, other in both),
        ("completions" if policies[0] == policies[1] else "policies"): by == "prompt",
    }
    return JobComparison(
        a=compared[0],
        b=compared[1],
        paired_by=by,
        differs=tuple(name for name, is_so in differs.items() if is_so),
        paired=len(pairs),
        prompts=len(set(prompt_ids)),
        left_out=_left_out((a.id, b.id), sides, both),
        mean_difference=mean_estimate([pair.difference for pair in pairs], prompt_ids),
        spearman=rank_correlation(*rewards, prompt_ids),
        kendall_tau_within_prompts=tau_within(*rewards, prompt_ids),
        criteria=_criteria(session, pairs, contents, on_progress),
        moved=_moved(session, pairs, contents, by, (a.min_coverage, b.min_coverage)),
    )


def _units(scored: Iterable[ItemReward], by: PairedBy) -> list[ScoredUnit]:
    """Return what a job scored under each rubric version: its completions, or its prompts."""
    found: defaultdict[tuple[int, int], list[ItemReward]] = defaultdict(list)
    for item in scored:
        found[item.completion_id if by == "completion" else item.prompt_id, item.rubric_id].append(item)
    units = []
    for (entity, rubric_id), several in found.items():
        known = [item.reward for item in several if item.reward is not None]
        name = several[0].rubric.rpartition("@")[0]
        units.append(ScoredUnit(entity, rubric_id, name, several, fmean(known) if known else None))
    return units


def matched(first: Iterable[T], second: Iterable[T], *keys: Callable[[T], object]) -> list[tuple[T, T]]:
    """Pair things by the first of ``keys`` that names exactly one of those left on each side."""
    pairs, left, right = [], list(first), list(second)
    for key in keys:
        by_key: tuple[dict[object, list[T]], ...] = (defaultdict(list), defaultdict(list))
        for things, named in zip((left, right), by_key, strict=True):
            for thing in things:
                named[key(thing)].append(thing)
        unique = [name for name, things in by_key[0].items() if len(things) == 1 == len(by_key[1].get(name, ()))]
        pairs += [(by_key[0].pop(name)[0], by_key[1].pop(name)[0]) for name in unique]
        left, right = ([thing for things in named.values() for thing in things] for named in by_key)
    return pairs


def match_criteria(a: Rubric, b: Rubric) -> list[tuple[Criterion, Criterion]]:
    """Pair the criteria of two rubrics by key and wording, else by wording, else by key.

    Not by `Criterion.decided_by`: one whose scale, reference or check was edited is compared with what it was.
    """

    def wording(criterion: Criterion) -> str:
        return " ".join(criterion.text.split())

    return matched(a.criteria, b.criteria, lambda one: (one.key, wording(one)), wording, attrgetter("key"))


def _left_out(
    ids: tuple[int, int],
    sides: tuple[list[ScoredUnit], list[ScoredUnit]],
    both: Sequence[tuple[ScoredUnit, ScoredUnit]],
) -> tuple[LeftOut, ...]:
    """Return how many units are in one job only, or lack a reward, by the jobs that lack something."""
    counts: Counter[tuple[tuple[int, ...], str]] = Counter()
    for lacking, side in zip(reversed(ids), sides, strict=True):
        counts[(lacking,), "not_in_job"] = len(side) - len(both)
    for pair in both:
        missing = {id_: one for id_, one in zip(ids, pair, strict=True) if one.reward is None}
        if missing:
            unfinished = any(item.state in ("pending", "leased") for one in missing.values() for item in one.items)
            counts[tuple(missing), "unfinished" if unfinished else "no_reward"] += 1
    return tuple(
        LeftOut.model_validate({"job_ids": job_ids, "reason": reason, "count": count})
        for (job_ids, reason), count in counts.items()
        if count
    )


def _criteria(
    session: Session, pairs: Sequence[RewardedPair], contents: Mapping[int, Rubric], on_progress: OnProgress
) -> tuple[CriterionComparison, ...]:
    """Return each criterion that both sides have, by falling number of flips."""
    match = cache(lambda a, b: match_criteria(contents[a], contents[b]))
    found: defaultdict[tuple[str, str, str, bool], list[tuple[float, float]]] = defaultdict(list)
    for start in range(0, len(pairs), PAIRS_PER_PAGE):
        page = pairs[start : start + PAIRS_PER_PAGE]
        ids = (item.id for pair in page for one in (pair.a, pair.b) for item in one.items)
        of_items = verdicts.for_items(session, ids).items()
        values = {id_: {one.criterion: one.value for one in each if one.value is not None} for id_, each in of_items}
        for pair in page:
            for a, b in match(pair.a.rubric_id, pair.b.rubric_id):
                known = [
                    [values[item.id][key] for item in side.items if key in values.get(item.id, ())]
                    for side, key in ((pair.a, a.key), (pair.b, b.key))
                ]
                if all(known):
                    name = pair.b.rubric, a.key, b.key, a.text.split() != b.text.split()
                    found[name].append((fmean(known[0]), fmean(known[1])))
        on_progress(start + len(page), len(pairs), "")
    rows = []
    for (rubric, key_a, key_b, reworded), means in found.items():
        met = [(one >= 0.5, other >= 0.5) for one, other in means]
        names = {"rubric": rubric, "key_a": key_a, "key_b": key_b, "reworded": reworded, "paired": len(met)}
        flips = {"to_met": met.count((False, True)), "to_unmet": met.count((True, False))}
        mean_a, mean_b = map(fmean, zip(*means, strict=True))
        rows.append(CriterionComparison.model_validate(names | flips | {"mean_a": mean_a, "mean_b": mean_b}))
    return tuple(sorted(rows, key=lambda row: (-row.flips, -abs(row.mean_b - row.mean_a))))


def _moved(
    session: Session,
    pairs: Sequence[RewardedPair],
    contents: Mapping[int, Rubric],
    by: PairedBy,
    min_coverage: tuple[float | None, float | None],
) -> tuple[Moved, ...]:
    """Return the pairs whose rewards differ most, with the criteria whose contributions to them differ most.

    A contribution is the mean over completions with a reward; a criterion of a single side counts as a whole.
    """
    rows = []
    for pair in sorted((one for one in pairs if one.difference), key=lambda one: -abs(one.difference))[:MOST_MOVED]:
        renamed = {b.key: a.key for a, b in match_criteria(contents[pair.a.rubric_id], contents[pair.b.rubric_id])}
        changes: defaultdict[str, float] = defaultdict(float)
        for sign, one, least in zip((1, -1), (pair.b, pair.a), reversed(min_coverage), strict=True):
            ids = [item.id for item in one.items if item.reward is not None]
            new_names = {old: new for new, old in renamed.items()} if sign < 0 else {}
            for found in verdicts.for_items(session, ids).values():
                parts = reward_or_null(contents[one.rubric_id], found, min_coverage=least).contributions
                for key, value in parts.items():
                    changes[new_names.get(key, key)] += sign * value / len(ids)
        largest = sorted(changes.items(), key=lambda change: -abs(change[1]))[:MOST_CRITERIA]
        criteria = [CriterionChange(criterion=key, change=round(one, 12)) for key, one in largest if abs(one) > 1e-12]
        item, whole = pair.a.items[0], by == "completion"
        prompt = prompts.get(session, pair.prompt_id).value.text[: 2 * PROMPT_CHARS]
        rows.append(
            Moved(
                completion_id=item.completion_id if whole else None,
                completion_external_id=item.completion_external_id if whole else None,
                prompt_id=pair.prompt_id,
                prompt_external_id=item.prompt_external_id,
                policies=tuple(dict.fromkeys(item.policy for one in (pair.a, pair.b) for item in one.items)),
                prompt=" ".join(prompt.split())[:PROMPT_CHARS],
                rubric=pair.b.rubric,
                reward_a=pair.reward_a,
                reward_b=pair.reward_b,
                difference=pair.difference,
                criteria=tuple(criteria),
            )
        )
    return tuple(rows)
