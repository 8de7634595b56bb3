"""Best-of-n from stored rewards: what judges would choose among the samples of each prompt. No judge is asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from rubricsvc.core.estimate import Estimate
from rubricsvc.errors import InvalidError, needs_extra
from rubricsvc.schemas.runs import BestOfN, JudgeCurves
from rubricsvc.stats import OnProgress
from rubricsvc.store import completions, jobs, labels
from rubricsvc.store.session import by_id
from rubricsvc.store.tables import RubricRow

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.store.tables import JobRow

Scores = dict[int, float]
"""A score by completion id."""

LABELS = "labels"


def best_of_n(
    session: Session,
    job_ids: Sequence[int],
    gold: str,
    *,
    most: int | None = None,
    on_progress: OnProgress = lambda done, total, note: None,
) -> BestOfN:
    """Return the curves of best-of-n by the rewards of each job, on the completions that all of them scored.

    Args:
        session: A session.
        job_ids: Jobs whose rewards choose.
        gold: The id of another job, or ``labels``: those of the first job.
        most: The largest n; prompts with fewer samples are left out. None is the fewest samples of a prompt.
        on_progress: Called with the prompts that are done.

    Raises:
        NotFoundError: There is no such job.
        InvalidError: The gold is the reward of one of the jobs, there is no gold, or too few samples.
        UnavailableError: The extra ``judging`` is not installed.
    """
    with needs_extra("judging"):
        import numpy as np

        from rubricsvc.stats.policy_scores import chosen_mean, kl_bound, over_prompts

    rows = [jobs.scoring(session, id_) for id_ in dict.fromkeys(job_ids)]
    versions, proxies = zip(*(_rewards(session, job.id) for job in rows), strict=True)
    source, gold_of = _gold(session, rows, versions, gold)
    every = set[int]().union(*proxies)
    judged = every.intersection(*proxies)
    of_prompt: dict[int, list[int]] = defaultdict(list)
    for id_, prompt_id in sorted(completions.prompt_ids(session, judged & gold_of.keys()).items()):
        of_prompt[prompt_id].append(id_)
    sizes = [len(ids) for ids in of_prompt.values() if len(ids) > 1]
    wanted, largest = min(sizes, default=2) if most is None else most, max(sizes, default=1)
    if wanted > largest:
        raise InvalidError(
            f"best of {wanted} needs {wanted} completions of a prompt with rewards and gold, found at most {largest}",
            hint="score more completions of each prompt (`rubricsvc completions generate -n N`), or lower --n",
            path="n",
        )
    ns = sorted({*(2**power for power in range(wanted.bit_length())), wanted})  # 1, 2, 4, … and the last
    distance = np.sqrt([kl_bound(n) for n in ns])
    kept = [ids for ids in of_prompt.values() if len(ids) >= ns[-1]]
    left_out = {
        "without a reward of each judge": len(every - judged),
        "without gold": len(judged - gold_of.keys()),
        "of a prompt with fewer samples": sum(len(ids) for ids in of_prompt.values() if len(ids) < ns[-1]),
    }
    golds = [np.array([gold_of[id_] for id_ in ids]) for ids in kept]

    def over_n(values: Sequence[Sequence[float]]) -> tuple[Estimate, ...]:
        """Return the estimates of values [P][n]."""
        return tuple(over_prompts(at_n) for at_n in zip(*values, strict=True))

    oracle = [[chosen_mean(one, one, n) for n in ns] for one in golds]
    oracle_gain = [values[-1] - values[0] for values in oracle]
    judges: list[JudgeCurves] = []
    first: list[float] = []
    for number, (job, rewards) in enumerate(zip(rows, proxies, strict=True)):
        own = [np.array([rewards[id_] for id_ in ids]) for ids in kept]
        chosen = [[chosen_mean(x, y, n) for n in ns] for x, y in zip(own, golds, strict=True)]
        last = [values[-1] for values in chosen]
        first = first or last
        gains = [values[-1] - values[0] for values in chosen]
        judges.append(
            JudgeCurves(
                job_id=job.id,
                judge=job.judge.name,
                rubrics=tuple(row.ref for row in by_id(session, RubricRow, versions[number]).values()),
                proxy=over_n([[chosen_mean(one, one, n) for n in ns] for one in own]),
                gold=over_n(chosen),
                gain=over_prompts(gains),
                oracle_share=_ratio(gains, oracle_gain),
                # by least squares through the value of one sample
                slope=over_prompts([float(distance @ (np.array(v) - v[0]) / (distance @ distance)) for v in chosen]),
                difference=over_prompts(last, first) if number else None,
            )
        )
        on_progress(number + 1, len(rows), job.judge.name)
    return BestOfN(
        gold_source=source,
        prompts=len(kept),
        samples=(min(map(len, kept)), max(map(len, kept))),
        left_out={reason: count for reason, count in left_out.items() if count},
        n=tuple(ns),
        kl_bound=tuple(map(kl_bound, ns)),
        oracle=over_n(oracle),
        worst=over_n([[-chosen_mean(-one, -one, n) for n in ns] for one in golds]),
        judges=tuple(judges),
    )


def _ratio(values: Sequence[float], of: Sequence[float]) -> Estimate:
    """Return the ratio of the sums of two values of each prompt."""
    import numpy as np

    from rubricsvc.stats.intervals import bootstrap

    above, below = np.array(values), np.array(of)
    found = bootstrap(
        lambda rows: {"": above[rows].sum() / whole} if (whole := below[rows].sum()) else {}, np.arange(len(above))
    )
    return found.get("", Estimate(None, null_reason="the divisor is 0"))


def _rewards(session: Session, job_id: int) -> tuple[set[int], Scores]:
    """Return the ids of a job's rubrics, and the mean reward of each completion over them.

    A completion has none where one is missing: scales may differ.
    """
    rows, found = jobs.rewards(session, job_id), defaultdict[int, list[float | None]](list)
    for row in rows:
        found[row.completion_id].append(row.reward)
    known = {id_: [one for one in several if one is not None] for id_, several in found.items()}
    means = {id_: fmean(several) for id_, several in known.items() if len(several) == len(found[id_])}
    return {row.rubric_id for row in rows}, means


def _gold(
    session: Session, rows: Sequence[JobRow], versions: Sequence[Collection[int]], gold: str
) -> tuple[str, Scores]:
    """Return where the gold is from, and the gold of completions.

    Raises:
        InvalidError: It is the reward of one of the jobs, which have these rubrics, or there is none.
    """
    if gold == LABELS:
        given: dict[int, list[float]] = defaultdict(list)
        for id_, _, value in labels.overall_labels(session, rows[0].id):
            given[id_].append(value)
        if not given:
            hint = "import labels `overall` of these completions: `rubricsvc labels import FILE`"
            raise InvalidError(f"no completion of job {rows[0].id} has a gold by {gold}", hint=hint, path="gold")
        return "overall labels", {id_: fmean(values) for id_, values in given.items()}
    if not gold.isdecimal():
        raise InvalidError(f"unknown gold {gold!r}", hint="use the id of a job, or labels", path="gold")
    job = jobs.scoring(session, int(gold))
    used, found = _rewards(session, job.id)
    for row, own in zip(rows, versions, strict=True):
        shared = by_id(session, RubricRow, used.intersection(own)).values()
        checked_only = any(all(criterion.check for criterion in one.value.criteria) for one in shared)
        if checked_only or (shared and row.judge.digest == job.judge.digest):  # every judge gives the same by checks
            raise InvalidError(
                f"the gold, job {job.id}, is the reward of job {row.id}: one rubric, and one judge or checks alone",
                hint="choose a job of another judge, or `--gold labels`",
                path="gold",
            )
    return f"job {job.id}, judge {job.judge.name}", found
