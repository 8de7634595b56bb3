"""Best-of-n from stored rewards: what judges would choose among the samples of each prompt. No judge is asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from rubricsvc.core.estimate import Estimate
from rubricsvc.errors import InvalidError, needs_extra
from rubricsvc.queries import BestOfNQuery
from rubricsvc.schemas.jobs import BestOfN, JudgeCurve
from rubricsvc.store import jobs, labels
from rubricsvc.store.session import by_id
from rubricsvc.store.tables import JobRow, RubricRow

if TYPE_CHECKING:
    from rubricsvc.stats.intervals import Floats

LABELS = "labels"


def best_of_n(session: Session, query: BestOfNQuery) -> BestOfN:
    """Return the curves of best-of-n by the rewards of each job, on the completions that all of them scored.

    It is an InvalidError if the gold is the reward of one of the jobs, or there is no gold or too few samples.
    """
    with needs_extra("judging"):
        import numpy as np

        from rubricsvc.stats.estimates import over_prompts
        from rubricsvc.stats.intervals import bootstrap
        from rubricsvc.stats.paired import chosen_mean

    rows = [jobs.scoring(session, id_) for id_ in dict.fromkeys(query.job)]
    scored = [jobs.rewards(session, job.id) for job in rows]
    proxies = [_means(one) for one in scored]
    source, gold = _gold(session, list(zip(rows, scored, strict=True)), query.gold)
    every = set[int]().union(*proxies)
    judged, prompt_of = every.intersection(*proxies), {item.completion_id: item.prompt_id for item in scored[0]}
    of_prompt: dict[int, list[int]] = defaultdict(list)
    for id_ in sorted(judged & gold.keys()):
        of_prompt[prompt_of[id_]].append(id_)
    sizes = [len(ids) for ids in of_prompt.values() if len(ids) > 1]
    most, largest = query.n or min(sizes, default=2), max(sizes, default=1)
    if most > largest:
        message = f"best of {most} needs {most} completions of a prompt with rewards and gold, found at most {largest}"
        hint = "score more completions of each prompt (`rubricsvc completions generate -n N`), or lower --n"
        raise InvalidError(message, hint=hint, path="n")
    ns = sorted({*(2**power for power in range(most.bit_length())), most})  # 1, 2, 4, … and the last
    kept = [ids for ids in of_prompt.values() if len(ids) >= most]
    left_out = {
        "without a reward of each judge": len(every - judged),
        "without gold": len(judged - gold.keys()),
        "of a prompt with fewer samples": sum(len(ids) for ids in of_prompt.values() if len(ids) < most),
    }
    golds = [np.array([gold[id_] for id_ in ids]) for ids in kept]

    def chosen(scores: Mapping[int, float]) -> Floats:
        """Return the expected gold of the best of each n by the scores, for each prompt [P, n]."""
        proxy = [np.array([scores[id_] for id_ in ids]) for ids in kept]
        return np.array([[chosen_mean(x, y, n) for n in ns] for x, y in zip(proxy, golds, strict=True)])

    oracle, curves, first = chosen(gold), list[JudgeCurve](), None
    possible = oracle[:, -1] - oracle[:, 0]
    for job, rewards in zip(rows, proxies, strict=True):
        curve = chosen(rewards)
        last, gain = curve[:, -1].tolist(), curve[:, -1] - curve[:, 0]

        def share(drawn: Any, gain: Floats = gain) -> dict[str, float]:
            return {"": gain[drawn].sum() / total} if (total := possible[drawn].sum()) else {}

        no_share = Estimate(None, null_reason="the divisor is 0")
        curves.append(
            JudgeCurve(
                job_id=job.id,
                judge=job.judge.name,
                gold=tuple(map(over_prompts, curve.T.tolist())),
                gain=over_prompts(gain.tolist()),
                oracle_share=bootstrap(share, np.arange(len(kept))).get("", no_share),
                difference=over_prompts(last, first) if first else None,
            )
        )
        first = first or last
    return BestOfN(
        gold_source=source,
        prompts=len(kept),
        left_out={reason: count for reason, count in left_out.items() if count},
        n=tuple(ns),
        oracle=tuple(map(over_prompts, oracle.T.tolist())),
        judges=tuple(curves),
    )


def _means(rows: Sequence[Any]) -> dict[int, float]:
    """Return the mean reward of each completion; none where one is missing, since rubrics may differ in their scale."""
    found = defaultdict[int, list[Any]](list)
    for row in rows:
        found[row.completion_id].append(row.reward)
    return {id_: fmean(rewards) for id_, rewards in found.items() if None not in rewards}


def _gold(session: Session, scored: Sequence[tuple[JobRow, Sequence[Any]]], gold: str) -> tuple[str, dict[int, float]]:
    """Return where the gold is from, and the gold of completions; see the errors of `best_of_n`."""
    if gold == LABELS:
        first, given = scored[0][0].id, defaultdict[int, list[float]](list)
        for id_, _, value in labels.overall_labels(session, first):
            given[id_].append(value)
        if not given:
            hint = "import labels `overall` of these completions: `rubricsvc labels import FILE`"
            raise InvalidError(f"no completion of job {first} has a gold by {gold}", hint=hint, path="gold")
        return "overall labels", {id_: fmean(values) for id_, values in given.items()}
    if not gold.isdecimal():
        raise InvalidError(f"unknown gold {gold!r}", hint="use the id of a job, or labels", path="gold")
    job = jobs.scoring(session, int(gold))
    rewards = jobs.rewards(session, job.id)
    for other, rows in scored:
        both = {row.rubric_id for row in rewards} & {row.rubric_id for row in rows}
        shared = by_id(session, RubricRow, both).values()
        checked_only = any(all(criterion.check for criterion in row.value.criteria) for row in shared)
        if checked_only or (shared and other.judge.digest == job.judge.digest):  # every judge gives the same by checks
            raise InvalidError(
                f"the gold, job {job.id}, is the reward of job {other.id}: one rubric, and one judge or checks alone",
                hint="choose a job of another judge, or `--gold labels`",
                path="gold",
            )
    return f"job {job.id}, judge {job.judge.name}", _means(rewards)
