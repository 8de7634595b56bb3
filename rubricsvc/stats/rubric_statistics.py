"""Statistics of a rubric's criteria from stored verdicts, and advice on them. Needs the extra ``judging``."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Literal

import numpy as np

from rubricsvc.core.rubric_analysis import (
    MIN_VERDICTS,
    Action,
    Advice,
    CriterionStatistics,
    RedundantPair,
    RewardSpread,
    RubricAnalysis,
)
from rubricsvc.stats import criteria
from rubricsvc.stats.criteria import MIN_COMPLETIONS, VerdictMatrix
from rubricsvc.stats.paired import differences, preference_pairs
from rubricsvc.stats.reports import CriterionAgreement

SATURATED = 0.95
REDUNDANT = 0.9
DOMINANT = 0.5
OPPOSED = -0.05
FOLLOWS_LENGTH = 0.7
UNRELIABLE = 0.4
UNSCORED = 0.1


def advice(criteria: Sequence[CriterionStatistics], redundant: Sequence[RedundantPair]) -> tuple[Advice, ...]:
    """Return the advice on these criteria, by criterion; none on one with fewer verdicts than `MIN_VERDICTS`."""
    by_key, found = {one.key: one for one in criteria}, list[tuple[str, Action, str]]()
    for pair in redundant:  # the one with the smaller weight goes; of equal ones the later
        a, b = by_key[pair.a], by_key[pair.b]
        less, kept = (a, b) if abs(a.weight) < abs(b.weight) else (b, a)
        message = f"correlation {pair.correlation:+.2f} with {kept.key!r} over {pair.n} completions"
        found.append((less.key, "retire", message))
    for one in criteria:
        if one.n + round(one.n * one.failed) < MIN_VERDICTS:
            continue
        guards = one.required or (one.weight < 0 and one.saturated == "not met")
        if one.saturated and not guards and one.met.value is not None:
            interval = f", 95 % [{one.met.low:.1%}, {one.met.high:.1%}]" if one.met.low is not None else ""
            groups = f"; it varies in {one.varying_groups:.1%} of the groups" if one.varying_groups is not None else ""
            found.append((one.key, "retire", f"met by {one.met.value:.1%} of {one.n} completions{interval}{groups}"))
        edge = one.edge
        ends = None if edge is None or edge.low is None or edge.high is None else (edge.low, edge.high)
        if edge is not None and ends is not None and (ends[1] < 0 if one.weight > 0 else ends[0] > 0):
            what = f"people prefer completions that meet it {'less' if one.weight > 0 else 'more'}"
            interval = f"[{ends[0]:+.3f}, {ends[1]:+.3f}]"
            found.append((one.key, "retire", f"{what}: edge {edge.value:+.3f} {interval}, weight {one.weight:g}"))
        share = one.variance_share
        if share is not None and len(criteria) >= 3 and share >= DOMINANT:
            message = f"{share:.0%} of the reward's variance, by one of {len(criteria)} criteria"
            found.append((one.key, "reweigh", message))
        elif share is not None and len(criteria) >= 3 and share <= OPPOSED:
            message = f"{share:.0%} of the reward's variance: it lowers rewards that the others raise"
            found.append((one.key, "reweigh", message))
        kappa = one.agreement.get("weighted_kappa")
        if kappa is not None and kappa.value is not None and kappa.high is not None and kappa.high < UNRELIABLE:
            interval = f"[{kappa.low:.2f}, {kappa.high:.2f}]"
            found.append((one.key, "sharpen", f"kappa {kappa.value:.2f} {interval} with {one.labels} labels"))
        if one.failed + one.abstained >= UNSCORED:
            message = f"{one.failed:.0%} of the verdicts failed, {one.abstained:.0%} are abstentions"
            found.append((one.key, "sharpen", message))
        r = one.length_correlation
        if one.kind == "judged" and r is not None and abs(r) >= FOLLOWS_LENGTH:
            message = f"correlation {r:+.2f} with the length: if length is meant, a check counts it exactly"
            found.append((one.key, "check", message))
    found.sort(key=lambda one: list(by_key).index(one[0]))
    return tuple(Advice(action=action, criterion=key, evidence=evidence) for key, action, evidence in found)


def analysis(
    judge: str,
    matrix: VerdictMatrix,
    job_id: int | None,
    agreement: Mapping[str, CriterionAgreement],
    overall: Sequence[tuple[int, str, float]],
) -> RubricAnalysis:
    """Return the analysis of a rubric version by the verdicts of a judge (of a job, if it is one).

    Its ``agreement`` with people's labels is by criterion key; ``overall`` has (completion id, person, score).
    """
    values, prompts, independent = matrix.values, matrix.prompts, matrix.independent
    groups = np.unique(prompts, return_counts=True)[1]
    statistics = _criteria(matrix, agreement, overall)
    r, counts = criteria.correlations(values)
    keys = [criterion.key for criterion in matrix.rubric.criteria]
    places = np.argwhere(np.triu((np.abs(np.nan_to_num(r)) >= REDUNDANT) & (counts >= MIN_COMPLETIONS), 1)).tolist()
    pairs = [RedundantPair(a=keys[i], b=keys[j], correlation=float(r[i, j]), n=int(counts[i, j])) for i, j in places]
    redundant = tuple(sorted(pairs, key=lambda pair: -abs(pair.correlation)))
    rewards = matrix.rewards[:, None]
    variance, varying = criteria.within_groups(rewards, prompts)
    return RubricAnalysis(
        rubric_id=matrix.rubric_id or None,
        rubric=matrix.name,
        job_id=job_id,
        judge=judge,
        completions=len(matrix.completions),
        prompts=len(groups),
        groups=int((groups > 1).sum()),
        reward=RewardSpread(
            n=int((~np.isnan(rewards)).sum()),
            mean=criteria.mean_estimates(rewards, independent)[0],
            variance_within=_known(variance[0]),
            varying_groups=_known(varying[0]),
        ),
        criteria=statistics,
        redundant=redundant,
        advice=advice(statistics, redundant) if matrix.shares is None else (),
    )


def _criteria(
    matrix: VerdictMatrix, agreement: Mapping[str, CriterionAgreement], overall: Sequence[tuple[int, str, float]]
) -> tuple[CriterionStatistics, ...]:
    values, size, prompts = matrix.values, len(matrix.completions), matrix.prompts
    place_of = {id_: row for row, id_ in enumerate(matrix.completions.tolist())} if overall else {}
    scores = ((place_of[id_], person, score) for id_, person, score in overall if id_ in place_of)
    pairs = preference_pairs(scores, prompts)
    edge = criteria.mean_estimates(differences(values, pairs), matrix.independent[pairs[:, 0]])
    means = criteria.mean_estimates(values, matrix.independent)
    reached = np.where(np.isnan(values), np.nan, values >= 0.5) if matrix.shares is None else matrix.shares
    met = criteria.mean_estimates(reached, matrix.independent, share=matrix.shares is None)
    variance, varying = criteria.within_groups(values, prompts)
    parts = matrix.contributions
    kept = ~np.isnan(parts).any(1)
    has_groups = len(np.unique(prompts)) < size
    shares = criteria.variance_shares(criteria.centred(parts[kept], prompts[kept]) if has_groups else parts[kept])
    length = criteria.length_correlations(values, matrix.lengths, prompts)
    found = []
    for place, criterion in enumerate(matrix.rubric.criteria):
        n, labels, share = int((~np.isnan(values[:, place])).sum()), agreement.get(criterion.key), met[place].value
        saturated: Literal["met", "not met"] | None = None
        if n >= MIN_VERDICTS and share is not None and not 1 - SATURATED < share < SATURATED:
            saturated = "met" if share >= SATURATED else "not met"
        statistics = CriterionStatistics(
            key=criterion.key,
            text=criterion.text,
            weight=criterion.weight,
            kind=criterion.kind,
            required=criterion.required,
            n=n,
            failed=float(matrix.failed[place] / size),
            abstained=float(matrix.abstained[place] / size),
            mean=means[place],
            met=met[place],
            saturated=saturated,
            variance_within=_known(variance[place]),
            varying_groups=_known(varying[place]),
            variance_share=_known(shares[place]),
            length_correlation=_known(length[place]),
            labels=labels.pairs if labels else 0,
            agreement={name: one for name, one in labels.metrics.items() if one.value is not None} if labels else {},
            edge=edge[place] if edge[place].value is not None else None,
        )
        found.append(statistics)
    return tuple(found)


def _known(value: float) -> float | None:
    """Return the value, None for NaN and infinity."""
    return float(value) if isfinite(value) else None
