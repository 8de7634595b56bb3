"""Compare two jobs on what both scored, from stored rewards and verdicts. Nothing is written."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rubricsvc.core.estimate import mean_estimate
from rubricsvc.core.reward import contributions
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
from rubricsvc.store import completions, items, jobs, prompts, rubrics, verdicts

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.rubric import Criterion, Rubric
    from rubricsvc.stats import OnProgress
    from rubricsvc.store.items import ItemReward
    from rubricsvc.store.tables import JobRow, RubricRow

T = TypeVar("T")

MOST_MOVED = 10
MOST_CRITERIA = 3
PROMPT_CHARS = 200
PAIRS_PER_PAGE = 200
_SUBMIT_SAME = (
    "submit the file or the selection of one job again: `rubricsvc jobs submit FILE --judge NAME` to compare judges;"
    " for policies, completions of the same prompts"
)


@dataclass(frozen=True)
class ScoredUnit:
    """What one job scored under one rubric version: a completion, or the completions of a prompt."""

    entity: int
    items: list[ItemReward] = field(default_factory=list)

    @property
    def rubric_id(self) -> int:
        """The id of the rubric version."""
        return self.items[0].rubric_id

    @property
    def rubric(self) -> str:
        """The rubric's name."""
        return self.items[0].rubric.rpartition("@")[0]

    @property
    def reward(self) -> float | None:
        """The mean reward; None where no completion has one."""
        known = [item.reward for item in self.items if item.reward is not None]
        return fmean(known) if known else None


class RewardedPair(NamedTuple):
    """The same completion or prompt in both jobs, with a reward on both sides."""

    a: ScoredUnit
    b: ScoredUnit
    reward_a: float
    reward_b: float

    @property
    def prompt_id(self) -> int:
        """The prompt, which is the same on both sides."""
        return self.a.items[0].prompt_id

    @property
    def difference(self) -> float:
        """The reward of B less that of A, to 12 decimals."""
        return round(self.reward_b - self.reward_a, 12) + 0.0  # + 0.0: no -0.0


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
    a, b = jobs.scoring(session, a_id), jobs.scoring(session, b_id)
    scored_a, scored_b = items.rewards(session, a.id), items.rewards(session, b.id)
    if by is None:
        shared = {item.completion_id for item in scored_a} & {item.completion_id for item in scored_b}
        by = "completion" if shared else "prompt"
    sides = _units(scored_a, by), _units(scored_b, by)
    both = matched(
        *sides, lambda one: (one.entity, one.rubric_id), lambda one: (one.entity, one.rubric), lambda one: one.entity
    )
    if not both:
        asked = ({item.prompt_id for item in scored} for scored in (scored_a, scored_b))
        hint = "pair prompts: --by prompt" if set.intersection(*asked) else _SUBMIT_SAME
        raise InvalidError(f"jobs {a.id} and {b.id} have no {by} in common", hint=hint, path="by")
    rewards = ((one, other, one.reward, other.reward) for one, other in both)
    pairs = [RewardedPair(one, other, x, y) for one, other, x, y in rewards if x is not None and y is not None]
    rows = rubrics.many(session, {one.rubric_id for pair in both for one in pair})
    contents = {rubric_id: row.value for rubric_id, row in rows.items()}
    with needs_extra("judging"):
        from rubricsvc.stats.paired import rank_correlation, tau_within
    prompt_ids = [pair.prompt_id for pair in pairs]
    sequences = [pair.reward_a for pair in pairs], [pair.reward_b for pair in pairs]
    return JobComparison(
        a=_job(a, scored_a, [one for one, _ in both], [pair.reward_a for pair in pairs], rows),
        b=_job(b, scored_b, [other for _, other in both], [pair.reward_b for pair in pairs], rows),
        paired_by=by,
        differs=_differences(a, b, both, by),
        paired=len(pairs),
        prompts=len(set(prompt_ids)),
        left_out=_left_out(a.id, b.id, sides, both),
        mean_difference=mean_estimate([pair.difference for pair in pairs], prompt_ids),
        spearman=rank_correlation(*sequences, prompt_ids),
        kendall_tau_within_prompts=tau_within(*sequences, prompt_ids),
        criteria=_criteria(session, pairs, contents, on_progress),
        moved=_moved(session, pairs, contents, by, (a.min_coverage, b.min_coverage)),
    )


def _units(items: Iterable[ItemReward], by: PairedBy) -> list[ScoredUnit]:
    """Return what a job scored under each rubric version: its completions, or its prompts."""
    found: dict[tuple[int, int], ScoredUnit] = {}
    for item in items:
        entity = item.completion_id if by == "completion" else item.prompt_id
        found.setdefault((entity, item.rubric_id), ScoredUnit(entity)).items.append(item)
    return list(found.values())


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
    """Pair the criteria of two rubrics by key and wording, else by wording, else by key."""
    return matched(a.criteria, b.criteria, lambda one: (one.key, wording(one)), wording, lambda one: one.key)


def wording(criterion: Criterion) -> str:
    """Return the text that decides whether two criteria have the same wording.

    Not `Criterion.decided_by`: a criterion whose scale, reference or check was edited is compared with what it was.
    """
    return " ".join(criterion.text.split())


def _job(
    job: JobRow,
    scored: Sequence[ItemReward],
    shared: Sequence[ScoredUnit],
    rewards: Sequence[float],
    rows: Mapping[int, RubricRow],
) -> ComparedJob:
    return ComparedJob(
        job_id=job.id,
        name=job.name,
        judge=job.judge.name,
        judge_digest=job.judge.digest,
        rubrics=tuple(sorted({rows[one.rubric_id].ref for one in shared})),
        policies=tuple(sorted({item.policy for one in shared for item in one.items})),
        completions=len(scored),
        rewards=sum(item.reward is not None for item in scored),
        mean_reward=fmean(rewards) if rewards else None,
    )


def _differences(
    a: JobRow, b: JobRow, both: Sequence[tuple[ScoredUnit, ScoredUnit]], by: PairedBy
) -> tuple[Difference, ...]:
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
    a_id: int,
    b_id: int,
    sides: tuple[list[ScoredUnit], list[ScoredUnit]],
    both: Sequence[tuple[ScoredUnit, ScoredUnit]],
) -> tuple[LeftOut, ...]:
    counts: Counter[tuple[tuple[int, ...], str]] = Counter()
    for lacking, side in ((b_id, sides[0]), (a_id, sides[1])):
        counts[(lacking,), "not_in_job"] = len(side) - len(both)
    for pair in both:
        missing = [(id_, one) for id_, one in zip((a_id, b_id), pair, strict=True) if one.reward is None]
        if missing:
            open_items = any(item.state in ("pending", "leased") for _, one in missing for item in one.items)
            reason = "unfinished" if open_items else "no_reward"
            counts[tuple(dict.fromkeys(id_ for id_, _ in missing)), reason] += 1
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
        values = verdicts.values_for_items(session, ids)
        for pair in page:
            for a, b in match(pair.a.rubric_id, pair.b.rubric_id):
                known = [
                    [values[item.id][key] for item in side.items if key in values.get(item.id, ())]
                    for side, key in ((pair.a, a.key), (pair.b, b.key))
                ]
                if all(known):
                    name = pair.b.rubric, a.key, b.key, wording(a) != wording(b)
                    found[name].append((fmean(known[0]), fmean(known[1])))
        on_progress(start + len(page), len(pairs), "")
    rows = []
    for (rubric, key_a, key_b, reworded), means in found.items():
        met = [(one >= 0.5, other >= 0.5) for one, other in means]
        rows.append(
            CriterionComparison(
                rubric=rubric,
                key_a=key_a,
                key_b=key_b,
                reworded=reworded,
                paired=len(met),
                mean_a=fmean(one for one, _ in means),
                mean_b=fmean(other for _, other in means),
                to_met=met.count((False, True)),
                to_unmet=met.count((True, False)),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.flips, -abs(row.mean_b - row.mean_a))))


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
            policies=tuple(dict.fromkeys(item.policy for one in (pair.a, pair.b) for item in one.items)),
            prompt=" ".join(stored_prompts[pair.prompt_id].value.text[: 2 * PROMPT_CHARS].split())[:PROMPT_CHARS],
            rubric=pair.b.rubric,
            reward_a=pair.reward_a,
            reward_b=pair.reward_b,
            difference=pair.difference,
            criteria=_largest_changes(session, pair, contents, min_coverage),
        )
        for pair in furthest
    )


def _largest_changes(
    session: Session,
    pair: RewardedPair,
    contents: Mapping[int, Rubric],
    min_coverage: tuple[float | None, float | None],
) -> tuple[CriterionChange, ...]:
    """Return the criteria whose contributions, means over completions with a reward, differ most.

    A criterion of a single side counts as a whole.
    """
    sides: list[dict[str, float]] = []
    for one, least in zip((pair.a, pair.b), min_coverage, strict=True):
        ids = [item.id for item in one.items if item.reward is not None]
        by_item = verdicts.for_items(session, ids)
        sums: defaultdict[str, float] = defaultdict(float)
        for id_ in ids:
            for part in contributions(contents[one.rubric_id], by_item.get(id_, ()), min_coverage=least):
                sums[part.criterion.key] += part.contribution or 0.0
        sides.append({key: value / len(ids) for key, value in sums.items()})
    before, after = sides
    renamed = {b.key: a.key for a, b in match_criteria(contents[pair.a.rubric_id], contents[pair.b.rubric_id])}
    changes = {key: value - before.pop(renamed.get(key, ""), 0.0) for key, value in after.items()}
    for key, value in before.items():
        changes[key] = changes.get(key, 0.0) - value
    largest = sorted(changes.items(), key=lambda change: -abs(change[1]))[:MOST_CRITERIA]
    return tuple(
        CriterionChange(criterion=key, change=round(value, 12)) for key, value in largest if abs(value) > 1e-12
    )
