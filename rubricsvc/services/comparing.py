"""Compare two jobs on what both scored, from stored rewards and verdicts. Nothing is written."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from sqlalchemy.orm import Session

from rubricsvc.core.rubric import Criterion, Rubric, default_pool, pools_of
from rubricsvc.errors import InvalidError, cut, needs_extra
from rubricsvc.queries import CompareQuery
from rubricsvc.schemas.jobs import ComparedJob, CriterionComparison, Difference, JobComparison, Moved
from rubricsvc.stats.estimates import independent, mean_estimate
from rubricsvc.store import completions, jobs
from rubricsvc.store.session import by_id
from rubricsvc.store.tables import PromptRow, RubricRow

T = TypeVar("T")

MOST_MOVED = 10
PAIRS_PER_PAGE = 200


class ScoredUnit(NamedTuple):
    """What one job scored under one rubric version: a completion, or the completions of a prompt."""

    entity: int
    rubric_id: int
    rubric: str
    items: list[Any]
    """Rows with the fields of `schemas.Item`."""
    reward: float | None
    """The mean over the items; None where none has a reward."""


def _rewards_of(session: Session, job_id: int, policy: str | None) -> Sequence[Any]:
    """Return what a job scored of one policy, or of all; raise InvalidError if it has no such policy."""
    found = jobs.rewards(session, job_id, policy=policy)
    if policy is not None and not found:
        known = ", ".join(sorted({repr(item.policy) for item in jobs.rewards(session, job_id)}))
        raise InvalidError(f"job {job_id} has no policy {policy!r}", hint=f"it has {cut(known, 200)}", path="policy")
    return found


def compare(session: Session, a_id: int, query: CompareQuery) -> JobComparison:
    """Compare job B with job A on the completions that both scored; differences are B less A.

    A job is compared with itself by its two policies. Many criteria are pooled also without ``pool``. Without ``by``,
    completions are paired if any is in both jobs, else prompts: the reward of a prompt is the mean over its
    completions. What both scored under the same version is paired first, then under one name, then under any rubric.

    Raises:
        NotFoundError: There is no such job.
        InvalidError: The jobs have no completion and no prompt in common.
        UnavailableError: The extra ``judging`` is not installed.
    """
    with needs_extra("judging"):
        from rubricsvc.stats.paired import tau_within

    a, b = jobs.scoring(session, a_id), jobs.scoring(session, query.b or a_id)
    by, policies = query.by, (query.policy_a, query.policy_b)
    if a.id == b.id and policies[0] == policies[1]:
        names = sorted({item.policy for item in jobs.rewards(session, a.id)})
        if len(names) != 2 or policies[0] is not None:
            message = f"job {a.id} has {len(names)} policies: {cut(', '.join(names), 200)}"
            raise InvalidError(message, hint=f"name two: `jobs compare {a.id}:POLICY {a.id}:POLICY`", path="policy_a")
        policies = names[0], names[1]
    scored = [_rewards_of(session, one.id, name) for one, name in zip((a, b), policies, strict=True)]
    if by is None:
        by = "completion" if set.intersection(*({item.completion_id for item in one} for one in scored)) else "prompt"

    def units(rewards: Iterable[Any]) -> list[ScoredUnit]:
        found: defaultdict[tuple[int, int], list[Any]] = defaultdict(list)
        for item in rewards:
            found[item.completion_id if by == "completion" else item.prompt_id, item.rubric_id].append(item)
        known = {key: [one.reward for one in each if one.reward is not None] for key, each in found.items()}
        means = {key: fmean(values) if values else None for key, values in known.items()}
        return [ScoredUnit(*key, each[0].rubric.rpartition("@")[0], each, means[key]) for key, each in found.items()]

    sides = units(scored[0]), units(scored[1])
    both = matched(*sides, attrgetter("entity", "rubric_id"), attrgetter("entity", "rubric"), attrgetter("entity"))
    if not both:
        asked = set.intersection(*({item.prompt_id for item in one} for one in scored))
        same = "submit the file or the selection of one job again: `rubricsvc jobs submit FILE --judge NAME` to compare"
        hint = "pair prompts: --by prompt" if asked else f"{same} judges; for policies, completions of the same prompts"
        raise InvalidError(f"jobs {a.id} and {b.id} have no {by} in common", hint=hint, path="by")
    left_out = Counter[str]()
    for id_, side in zip((b.id, a.id), sides, strict=True):
        left_out[f"not in job {id_}"] += len(side) - len(both)
    pairs: list[tuple[ScoredUnit, ScoredUnit]] = []
    rewarded: list[tuple[float, float]] = []
    for one, other in both:
        if one.reward is not None and other.reward is not None:
            pairs.append((one, other))
            rewarded.append((one.reward, other.reward))
            continue
        missing = {id_: unit for id_, unit in ((a.id, one), (b.id, other)) if unit.reward is None}
        unfinished = any(item.state in ("pending", "leased") for unit in missing.values() for item in unit.items)
        left_out[f"{'unfinished' if unfinished else 'no reward'} in job {' and '.join(map(str, missing))}"] += 1
    rows = by_id(session, RubricRow, {one.rubric_id for pair in both for one in pair})
    compared = [
        ComparedJob(
            job_id=job.id,
            name=job.name,
            judge=job.judge.name,
            judge_digest=job.judge.digest,
            rubrics=tuple(sorted({rows[one.rubric_id].ref for one in shared})),
            policies=tuple(sorted({item.policy for one in shared for item in one.items})),
            mean_reward=fmean(pair[side] for pair in rewarded) if rewarded else None,
        )
        for side, (job, shared) in enumerate(zip((a, b), zip(*both, strict=True), strict=True))
    ]
    differs: dict[Difference, bool] = {
        "judge": a.judge.digest != b.judge.digest,
        "min_coverage": a.min_coverage != b.min_coverage,
        "rubrics": any(one.rubric_id != other.rubric_id for one, other in both),
        ("completions" if compared[0].policies == compared[1].policies else "policies"): by == "prompt",
    }
    ids: tuple[str, ...] = ("prompt_id", "prompt_external_id")
    ids += ("completion_id", "completion_external_id") if by == "completion" else ()
    moved = []
    for (one, _), (x, y) in zip(pairs, rewarded, strict=True):
        change = round(y - x, 12) + 0.0  # no -0.0
        of_item = {name: getattr(one.items[0], name) for name in ids}
        moved.append(Moved(**of_item, reward_a=x, reward_b=y, difference=change))
    largest = sorted((one for one in moved if one.difference), key=lambda one: -abs(one.difference))
    prompt_ids = [one.prompt_id for one in moved]
    return JobComparison(
        a=compared[0],
        b=compared[1],
        paired_by=by,
        differs=tuple(name for name, is_so in differs.items() if is_so),
        paired=len(pairs),
        prompts=len(set(prompt_ids)),
        left_out={reason: count for reason, count in left_out.items() if count},
        mean_difference=mean_estimate(
            [one.difference for one in moved], independent(prompt_ids, [one.entity for one, _ in pairs])
        ),
        kendall_tau_within_prompts=tau_within([x for x, _ in rewarded], [y for _, y in rewarded], prompt_ids),
        criteria=_criteria(session, pairs, {rubric_id: row.value for rubric_id, row in rows.items()}, query.pool),
        moved=tuple(largest[:MOST_MOVED]),
    )


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

    Not by what decides them: one whose scale, reference or check was edited is compared with what it was.
    """
    keys = (lambda one: (one.key, *one.text.split()), lambda one: tuple(one.text.split()), attrgetter("key"))
    return matched(a.criteria, b.criteria, *keys)


def prompt_tags(
    session: Session, ids: Iterable[int], rubrics: Iterable[Rubric], pool: str
) -> dict[int, tuple[str, ...]]:
    """Return the tags of prompts, by id; raise InvalidError if neither these nor a criterion has a tag of ``pool``."""
    found = {id_: row.value.tags for id_, row in by_id(session, PromptRow, ids).items()}
    tags = {tag for rubric in rubrics for one in rubric.criteria for tag in one.tags}.union(*found.values())
    prefixes = {tag[:place] for tag in tags for place, mark in enumerate(tag) if mark == ":"}
    if pool not in (known := ["key", "group", "tag", *sorted(prefixes)]):
        message = f"no tag of a criterion or prompt begins with '{pool}:'"
        raise InvalidError(message, hint=f"expected one of {cut(', '.join(known), 200)}", path="pool")
    return found


def _criteria(
    session: Session, pairs: Sequence[tuple[ScoredUnit, ScoredUnit]], contents: Mapping[int, Rubric], pool: str | None
) -> tuple[CriterionComparison, ...]:
    """Return each criterion that both sides have, or each pool, by falling number of values that cross 0.5."""
    match = cache(lambda a, b: match_criteria(contents[a], contents[b]))
    pool = pool or default_pool(contents.values())
    tags = prompt_tags(session, {one.items[0].prompt_id for one, _ in pairs}, contents.values(), pool) if pool else {}
    found: defaultdict[tuple[str, str, str, bool, bool], list[tuple[float, float, int, int]]] = defaultdict(list)
    for start in range(0, len(pairs), PAIRS_PER_PAGE):
        page = pairs[start : start + PAIRS_PER_PAGE]
        ids = (item.id for pair in page for one in pair for item in one.items)
        of_items = completions.verdicts_of_items(session, ids).items()
        values = {id_: {v.criterion: v.value for v in each if v.value is not None} for id_, each in of_items}
        for one, other in page:
            prompt_id = one.items[0].prompt_id
            for a, b in match(one.rubric_id, other.rubric_id):
                known = [
                    [values[item.id][key] for item in side.items if key in values.get(item.id, ())]
                    for side, key in ((one, a.key), (other, b.key))
                ]
                names = [(other.rubric, a.key, b.key, a.text.split() != b.text.split(), a.weight < 0)]
                if pool:
                    names = [("", name, name, False, a.weight < 0) for name in pools_of(a, tags[prompt_id], pool)]
                for name in names if all(known) else ():
                    found[name].append((fmean(known[0]), fmean(known[1]), prompt_id, one.entity))
    rows = []
    for (rubric, key_a, key_b, reworded, pitfall), means in found.items():
        first, second, prompt_ids, entities = zip(*means, strict=True)
        crossed = Counter((x >= 0.5, y >= 0.5) for x, y in zip(first, second, strict=True))
        changes = [y - x for x, y in zip(first, second, strict=True)]
        row = CriterionComparison(
            rubric=rubric,
            key_a=key_a,
            key_b=key_b,
            reworded=reworded,
            pitfall=pitfall,
            paired=len(first),
            mean_a=fmean(first),
            mean_b=fmean(second),
            difference=mean_estimate(changes, independent(prompt_ids, entities)),
            to_met=crossed[False, True],
            to_unmet=crossed[True, False],
        )
        rows.append(row)
    return tuple(sorted(rows, key=lambda row: (-row.to_met - row.to_unmet, -abs(row.mean_b - row.mean_a))))
