"""The analysis of one rubric version, from its matrix of verdicts. Needs the extra ``judging``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

import numpy as np

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.rubric_analysis import (
    MIN_VERDICTS,
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
from rubricsvc.stats.rubric_advice import REDUNDANT, SATURATED, advice
from rubricsvc.stats.verdict_matrix import VerdictMatrix


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
    redundant = _redundant(matrix, r, counts)
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


def _redundant(matrix: VerdictMatrix, r: Floats, counts: Ints) -> tuple[RedundantPair, ...]:
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
