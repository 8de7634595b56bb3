"""Statistics of a rubric's criteria from stored verdicts, and advice on them. Needs the extra ``judging``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

import numpy as np

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.rubric_analysis import (
    MIN_VERDICTS,
    Advice,
    CriterionStatistics,
    Preferences,
    RedundantPair,
    RewardSpread,
    RubricAnalysis,
)
from rubricsvc.stats import criteria
from rubricsvc.stats.agreement import CriterionAgreement
from rubricsvc.stats.criteria import MIN_COMPLETIONS, Groups
from rubricsvc.stats.intervals import Floats, Ints
from rubricsvc.stats.paired import edges, error_bounds, preference_pairs
from rubricsvc.stats.reward_variance import affine, contribution_matrix, variance_shares
from rubricsvc.stats.verdict_matrix import VerdictMatrix

SATURATED = 0.95
REDUNDANT = 0.9
EXPLAINED = 0.8
DOMINANT = 0.5
OPPOSED = -0.05
FOLLOWS_LENGTH = 0.7
UNRELIABLE = 0.4
MIN_JUDGE_PAIRS = 20
UNSCORED = 0.1


def advice(criteria: Sequence[CriterionStatistics], redundant: Sequence[RedundantPair]) -> tuple[Advice, ...]:
    """Return the advice on these criteria, by criterion; none on one with fewer verdicts than `MIN_VERDICTS`."""
    by_key = {one.key: one for one in criteria}
    pairs = [_redundant(pair, by_key) for pair in redundant]
    retired = {one.criterion for one in pairs}
    in_pairs = {key for pair in redundant for key in (pair.a, pair.b)}
    found = list(pairs)
    for one in criteria:
        if one.n + round(one.n * one.failed) < MIN_VERDICTS:
            continue
        found += [*_retire(one), *_reweigh(one, len(criteria)), *_sharpen(one), *_check(one)]
        if one.key not in in_pairs | retired and one.explained is not None and one.explained >= EXPLAINED:
            evidence = f"the other criteria together explain {one.explained:.0%} of its variance, no single one does"
            found.append(Advice(action="split", criterion=one.key, evidence=evidence))
    order = list(by_key)
    return tuple(sorted(found, key=lambda one: order.index(one.criterion)))


def _redundant(pair: RedundantPair, by_key: Mapping[str, CriterionStatistics]) -> Advice:
    """Advise to retire the criterion with the smaller weight; of equal ones the later."""
    a, b = by_key[pair.a], by_key[pair.b]
    less, kept = (a, b) if abs(a.weight) < abs(b.weight) else (b, a)
    evidence = f"correlation {pair.correlation:+.2f} with {kept.key!r} over {pair.n} completions"
    return Advice(action="retire", criterion=less.key, evidence=evidence)


def _retire(one: CriterionStatistics) -> Iterator[Advice]:
    guards = one.required or (one.weight < 0 and one.saturated == "not met")
    if one.saturated and not guards and one.met.value is not None:
        evidence = f"met by {one.met.value:.1%} of {one.n} completions, 95 % [{one.met.low:.1%}, {one.met.high:.1%}]"
        groups = f"; it varies in {one.varying_groups:.1%} of the groups" if one.varying_groups is not None else ""
        yield Advice(action="retire", criterion=one.key, evidence=evidence + groups)
    edge = one.edge
    if edge is not None and edge.low is not None and edge.high is not None and edge.value is not None:
        wrong = edge.high < 0 if one.weight > 0 else edge.low > 0
        if wrong:
            what = "less" if one.weight > 0 else "more"
            evidence = f"people prefer completions that meet it {what}: edge {edge.value:+.3f}"
            evidence += f" [{edge.low:+.3f}, {edge.high:+.3f}], weight {one.weight:g}"
            yield Advice(action="retire", criterion=one.key, evidence=evidence)


def _reweigh(one: CriterionStatistics, criteria: int) -> Iterator[Advice]:
    share = one.variance_share if one.variance_share_within is None else one.variance_share_within
    where = "" if one.variance_share_within is None else " within groups"
    if share is None or criteria < 3:
        return
    if share >= DOMINANT:
        evidence = f"{share:.0%} of the reward's variance{where}, by one of {criteria} criteria"
        yield Advice(action="reweigh", criterion=one.key, evidence=evidence)
    elif share <= OPPOSED:
        evidence = f"{share:.0%} of the reward's variance{where}: it lowers rewards that the others raise"
        yield Advice(action="reweigh", criterion=one.key, evidence=evidence)


def _sharpen(one: CriterionStatistics) -> Iterator[Advice]:
    between = one.disagreement
    if between and between.pairs >= MIN_JUDGE_PAIRS and between.alpha is not None and between.alpha < UNRELIABLE:
        evidence = (
            f"judges differ on {between.differ:.0%} of {between.pairs} pairs of verdicts, alpha {between.alpha:.2f}"
        )
        yield Advice(action="sharpen", criterion=one.key, evidence=evidence)
    kappa = one.agreement.get("weighted_kappa")
    if kappa is not None and kappa.value is not None and kappa.high is not None and kappa.high < UNRELIABLE:
        evidence = f"kappa {kappa.value:.2f} [{kappa.low:.2f}, {kappa.high:.2f}] with {one.labels} labels"
        yield Advice(action="sharpen", criterion=one.key, evidence=evidence)
    if one.failed + one.abstained >= UNSCORED:
        evidence = f"{one.failed:.0%} of the verdicts failed, {one.abstained:.0%} are abstentions"
        yield Advice(action="sharpen", criterion=one.key, evidence=evidence)


def _check(one: CriterionStatistics) -> Iterator[Advice]:
    r = one.length_correlation
    if one.kind == "judged" and r is not None and abs(r) >= FOLLOWS_LENGTH:
        evidence = f"correlation {r:+.2f} with the length: if length is meant, a check counts it exactly"
        yield Advice(action="check", criterion=one.key, evidence=evidence)


@dataclass(frozen=True)
class AnalysisInput:
    """What is analysed: the verdicts of a judge; of others on the same; and people's labels.

    ``agreement`` is by criterion key, and ``overall`` are (completion id, person, score).
    """

    judge: str
    matrix: VerdictMatrix
    job_id: int | None = None
    others: Mapping[str, VerdictMatrix] = field(default_factory=dict)
    agreement: Mapping[str, CriterionAgreement] = field(default_factory=dict)
    overall: Sequence[tuple[int, str, float]] = ()


def analysis(evidence: AnalysisInput) -> RubricAnalysis:
    """Return the analysis of a rubric version."""
    matrix = evidence.matrix
    prompts = Groups(matrix.prompts)
    pairs = _pairs(evidence)
    rewarded = np.where(np.isnan(matrix.rewards)[:, None], np.nan, matrix.values)
    contributions = contribution_matrix(matrix.rubric, rewarded)
    statistics = tuple(_criteria(evidence, prompts, contributions, edges(matrix.values, pairs, matrix.independent)))
    r, counts = criteria.correlations(matrix.values)
    redundant = _rubric_statistics_redundant(matrix, r, counts)
    return RubricAnalysis(
        rubric_id=matrix.rubric_id,
        rubric=matrix.name,
        job_id=evidence.job_id,
        judge=evidence.judge,
        other_judges=tuple(evidence.others),
        completions=len(matrix.completions),
        prompts=len(prompts),
        groups=int((prompts.sizes > 1).sum()),
        reward=_spread(matrix, prompts, contributions),
        criteria=statistics,
        redundant=redundant,
        correlations=tuple(tuple(map(_known, line)) for line in r.tolist()) if len(r) and _enough(matrix) else (),
        preferences=_preferences(matrix, pairs) if len(pairs) else None,
        advice=advice(statistics, redundant),
    )


def _enough(matrix: VerdictMatrix) -> bool:
    return len(matrix.completions) >= MIN_COMPLETIONS


def _known(value: float) -> float | None:
    """Return the number, or None for NaN and infinity."""
    return float(value) if isfinite(value) else None


def _pairs(evidence: AnalysisInput) -> Ints:
    place = {id_: row for row, id_ in enumerate(evidence.matrix.completions.tolist())} if evidence.overall else {}
    labels = ((place[id_], person, score) for id_, person, score in evidence.overall if id_ in place)
    return preference_pairs(labels, evidence.matrix.prompts)


def _preferences(matrix: VerdictMatrix, pairs: Ints) -> Preferences:
    sums = affine(matrix.rubric)
    weights = sums[1] if sums else [criterion.weight for criterion in matrix.rubric.criteria]
    bounds = error_bounds(matrix.values, pairs, weights)
    return Preferences(pairs=len(pairs), prompts=len(np.unique(matrix.prompts[pairs[:, 0]])), bounds=bounds)


def _criteria(
    evidence: AnalysisInput, prompts: Groups, contributions: Floats, edge: Sequence[Estimate]
) -> Iterator[CriterionStatistics]:
    matrix = evidence.matrix
    values, size = matrix.values, len(matrix.completions)
    independent = prompts if len(prompts) > 1 else Groups(matrix.completions)
    means, met = criteria.mean_estimates(values, independent), criteria.met_estimates(values, independent)
    columns = _columns(matrix, prompts, contributions)
    several = [other.aligned(matrix.completions) for other in evidence.others.values()]
    between = criteria.disagreements([values, *several]) if several else [None] * values.shape[1]
    counts = (~np.isnan(values)).sum(0).tolist()
    for place, criterion in enumerate(matrix.rubric.criteria):
        labels = evidence.agreement.get(criterion.key)
        yield CriterionStatistics(
            key=criterion.key,
            text=criterion.text,
            weight=criterion.weight,
            kind=criterion.kind,
            required=criterion.required,
            n=counts[place],
            failed=float(matrix.failed[place] / size),
            abstained=float(matrix.abstained[place] / size),
            mean=means[place],
            met=met[place],
            saturated=_saturated(met[place]) if counts[place] >= MIN_VERDICTS else None,
            disagreement=between[place],
            labels=labels.pairs if labels else 0,
            agreement={name: one for name, one in labels.metrics.items() if one.value is not None} if labels else {},
            edge=edge[place] if edge[place].value is not None else None,
            **{name: _known(column[place]) for name, column in columns.items()},
        )


def _columns(matrix: VerdictMatrix, prompts: Groups, contributions: Floats) -> dict[str, Any]:
    """Return the figures that may be missing, each as a column [C]."""
    values = matrix.values
    within = criteria.within_groups(values, prompts)
    rewarded = ~np.isnan(contributions).any(1)
    parts = contributions[rewarded]
    groups = prompts if rewarded.all() else Groups(matrix.prompts[rewarded])
    centred = groups.centred(parts) if rewarded.any() else parts
    explained = criteria.explained(values)
    with np.errstate(divide="ignore"):
        inflation = 1 / (1 - explained)
    return {
        "variance": criteria.variances(values),
        "variance_within": within.variance,
        "varying_groups": within.varying,
        "explained": explained,
        "inflation": inflation,
        "variance_share": variance_shares(parts),
        "variance_share_within": variance_shares(centred),
        "length_correlation": criteria.length_correlations(values, matrix.lengths, prompts),
        "spread": matrix.spreads,
    }


def _saturated(met: Estimate) -> Literal["met", "not met"] | None:
    if met.value is None or 1 - SATURATED < met.value < SATURATED:
        return None
    return "met" if met.value >= SATURATED else "not met"


def _rubric_statistics_redundant(matrix: VerdictMatrix, r: Floats, counts: Ints) -> tuple[RedundantPair, ...]:
    keys = [criterion.key for criterion in matrix.rubric.criteria]
    places = np.argwhere(np.triu((np.abs(np.nan_to_num(r)) >= REDUNDANT) & (counts >= MIN_COMPLETIONS), 1)).tolist()
    found = [RedundantPair(a=keys[i], b=keys[j], correlation=float(r[i, j]), n=int(counts[i, j])) for i, j in places]
    return tuple(sorted(found, key=lambda pair: -abs(pair.correlation)))


def _spread(matrix: VerdictMatrix, prompts: Groups, contributions: Floats) -> RewardSpread:
    rewards = matrix.rewards[:, None]
    known = ~np.isnan(matrix.rewards)
    independent = prompts if len(prompts) > 1 else Groups(matrix.completions)
    within = criteria.within_groups(rewards, prompts)
    return RewardSpread(
        n=int(known.sum()),
        mean=criteria.mean_estimates(rewards, independent)[0],
        variance=_known(criteria.variances(rewards)[0]),
        variance_within=_known(within.variance[0]),
        varying_groups=_known(within.varying[0]),
        altered=int((np.abs(contributions[known].sum(1) - matrix.rewards[known]) > 1e-9).sum()),
    )
