"""Best-of-n from stored rewards: what judges would choose among the samples of each prompt. No judge is asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rubricsvc.core.estimate import Estimate
from rubricsvc.errors import InvalidError, needs_extra
from rubricsvc.schemas.runs import BestOfN, JudgeCurves
from rubricsvc.stats import OnProgress
from rubricsvc.store import jobs, labels
from rubricsvc.store.session import by_id
from rubricsvc.store.tables import RubricRow

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.stats.intervals import Floats
    from rubricsvc.store.tables import JobRow

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
        on_progress: Called with the judges that are done.

    Raises:
        NotFoundError: There is no such job.
        InvalidError: The gold is the reward of one of the jobs, there is no gold, or too few samples.
        UnavailableError: The extra ``judging`` is not installed.
    """
    with needs_extra("judging"):
        import numpy as np

        from rubricsvc.stats.intervals import bootstrap
        from rubricsvc.stats.policy_scores import chosen_mean, kl_bound, over_prompts

    rows = [jobs.scoring(session, id_) for id_ in dict.fromkeys(job_ids)]
    scored = [jobs.rewards(session, job.id) for job in rows]
    proxies = [_means(one) for one in scored]
    source, gold_of = _gold(session, list(zip(rows, scored, strict=True)), gold)
    every = set[int]().union(*proxies)
    judged, prompt_of = every.intersection(*proxies), {item.completion_id: item.prompt_id for item in scored[0]}
    of_prompt: dict[int, list[int]] = defaultdict(list)
    for id_ in sorted(judged & gold_of.keys()):
        of_prompt[prompt_of[id_]].append(id_)
    sizes = [len(ids) for ids in of_prompt.values() if len(ids) > 1]
    wanted, largest = min(sizes, default=2) if most is None else most, max(sizes, default=1)
    if wanted > largest:
        raise InvalidError(
            f"best of {wanted} needs {wanted} completions of a prompt with rewards and gold, found at most {largest}",
            hint="score more completions of each prompt (`rubricsvc completions generate -n N`), or lower --n",
            path="n",
        )
    ns = sorted({*(2**power for power in range(wanted.bit_length())), wanted})  # 1, 2, 4, … and the last
    kept = [ids for ids in of_prompt.values() if len(ids) >= ns[-1]]
    left_out = {
        "without a reward of each judge": len(every - judged),
        "without gold": len(judged - gold_of.keys()),
        "of a prompt with fewer samples": sum(len(ids) for ids in of_prompt.values() if len(ids) < ns[-1]),
    }

    def curves(scores: dict[int, float], gold: dict[int, float]) -> Floats:
        """Return the expected gold of the best of each n by the scores, for each prompt [P, n]."""
        of_samples = [[np.array([of[id_] for id_ in ids]) for of in (scores, gold)] for ids in kept]
        return np.array([[chosen_mean(x, y, n) for n in ns] for x, y in of_samples])

    def estimates(values: Floats) -> tuple[Estimate, ...]:
        return tuple(over_prompts(at_n) for at_n in values.T.tolist())

    def share(values: Floats, of: Floats) -> Estimate:
        """Return the ratio of the sums of two values of each prompt [P]."""
        found = bootstrap(
            lambda rows: {"": values[rows].sum() / s} if (s := of[rows].sum()) else {}, np.arange(len(of))
        )
        return found.get("", Estimate(None, null_reason="the divisor is 0"))

    oracle, judges, first = curves(gold_of, gold_of), list[JudgeCurves](), list[float]()
    for job, own, rewards in zip(rows, scored, proxies, strict=True):
        chosen = curves(rewards, gold_of)
        last, gains = chosen[:, -1].tolist(), chosen[:, -1] - chosen[:, 0]
        judges.append(
            JudgeCurves(
                job_id=job.id,
                judge=job.judge.name,
                rubrics=tuple(dict.fromkeys(item.rubric for item in own)),
                proxy=estimates(curves(rewards, rewards)),
                gold=estimates(chosen),
                gain=over_prompts(gains.tolist()),
                oracle_share=share(gains, oracle[:, -1] - oracle[:, 0]),
                difference=over_prompts(last, first) if first else None,
            )
        )
        first = first or last
        on_progress(len(judges), len(rows), job.judge.name)
    negated = {id_: -value for id_, value in gold_of.items()}
    return BestOfN(
        gold_source=source,
        prompts=len(kept),
        samples=(min(map(len, kept)), max(map(len, kept))),
        left_out={reason: count for reason, count in left_out.items() if count},
        n=tuple(ns),
        kl_bound=tuple(map(kl_bound, ns)),
        oracle=estimates(oracle),
        worst=estimates(-curves(negated, negated)),
        judges=tuple(judges),
    )


def _means(rows: Sequence[Any]) -> dict[int, float]:
    """Return the mean reward of each completion; none where one is missing, since rubrics may differ in their scale."""
    found = defaultdict[int, list[float | None]](list)
    for row in rows:
        found[row.completion_id].append(row.reward)
    known = {id_: [one for one in several if one is not None] for id_, several in found.items()}
    return {id_: fmean(several) for id_, several in known.items() if len(several) == len(found[id_])}


def _gold(session: Session, scored: Sequence[tuple[JobRow, Sequence[Any]]], gold: str) -> tuple[str, dict[int, float]]:
    """Return where the gold is from, and the gold of completions.

    Raises:
        InvalidError: It is the reward of one of the jobs, or there is none.
    """
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
        shared = by_id(
            session, RubricRow, {row.rubric_id for row in rewards} & {row.rubric_id for row in rows}
        ).values()
        checked_only = any(all(criterion.check for criterion in row.value.criteria) for row in shared)
        if checked_only or (shared and other.judge.digest == job.judge.digest):  # every judge gives the same by checks
            raise InvalidError(
                f"the gold, job {job.id}, is the reward of job {other.id}: one rubric, and one judge or checks alone",
                hint="choose a job of another judge, or `--gold labels`",
                path="gold",
            )
    return f"job {job.id}, judge {job.judge.name}", _means(rewards)
