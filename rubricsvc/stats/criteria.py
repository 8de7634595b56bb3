"""Figures of criteria over completions, on plain arrays. Needs the extra ``judging``.

``values`` is [N, C]: the value of each of C criteria on each of N completions, in [0, 1], NaN where a verdict has none.
``clusters`` [N] is what is independent: the prompt of each completion, or each completion where all have one prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rubricsvc.core.estimate import MIN_CLUSTERS, Estimate, no_interval, t_quantile
from rubricsvc.core.formulas import formula_for
from rubricsvc.core.rubric import Rubric
from rubricsvc.stats.intervals import Floats, Ints, wilson
from rubricsvc.stats.reward_variance import contribution_matrix

MIN_COMPLETIONS = 30
"""Correlations need as many completions."""
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class VerdictMatrix:
    """N completions and C criteria.

    Attributes:
        completions: Ids [N].
        prompts: Ids [N] of their prompts.
        rewards: Stored rewards [N], NaN where there is none.
        lengths: Characters [N].
        values: Values of the verdicts [N, C], NaN where there is none.
        failed: Failed verdicts [C]; ``abstained`` those without a finding.
    """

    rubric_id: int
    name: str
    rubric: Rubric
    completions: Ints
    prompts: Ints
    rewards: Floats
    lengths: Floats
    values: Floats
    failed: Ints
    abstained: Ints

    @property
    def independent(self) -> Ints:
        """What an interval treats as independent: the prompts, or the completions where all have one prompt."""
        return self.prompts if len(self.prompts) and np.ptp(self.prompts) > 0 else self.completions

    def aligned(self, completions: Ints) -> Floats:
        """Return the values of these completions [M, C], NaN where they are not among its own."""
        place = {id_: row for row, id_ in enumerate(self.completions.tolist())}
        rows = np.array([place.get(id_, -1) for id_ in completions.tolist()], np.int64)
        padded = np.vstack([self.values, np.full((1, self.values.shape[1]), np.nan)])
        return padded[rows]


class Groups:
    """Rows sorted into groups, so that sums over groups are one call for all columns."""

    def __init__(self, clusters: NDArray[Any]) -> None:
        self.names, self.of_row = np.unique(clusters, return_inverse=True)
        self._order = np.argsort(self.of_row, kind="stable")
        self.sizes = np.bincount(self.of_row, minlength=len(self.names))
        self._starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)

    def __len__(self) -> int:
        return len(self.names)

    def reduce(self, how: np.ufunc, rows: Floats) -> Floats:
        """Return the reduction of ``rows`` [N, C] by group, [G, C]."""
        reduced: Floats = how.reduceat(rows[self._order], self._starts, axis=0)
        return reduced

    def centred(self, rows: Floats) -> Floats:
        """Return ``rows`` [N, C] less the mean of their group, without the missing values."""
        known = ~np.isnan(rows)
        sums = self.reduce(np.add, np.where(known, rows, 0.0))
        counts = self.reduce(np.add, known.astype(float))
        return np.asarray(rows - (sums / np.maximum(counts, 1.0))[self.of_row], float)


class Within(NamedTuple):
    """``variance`` [C] is pooled over groups: Σ (x - mean of its group)² / Σ (size - 1); NaN without groups.

    ``varying`` [C] is the share of the groups with two or more values in which they are not all the same.
    """

    variance: Floats
    varying: Floats


def within_groups(values: Floats, groups: Groups) -> Within:
    """Return how far values vary among the completions of one prompt: what a policy can learn from."""
    known = ~np.isnan(values)
    counts = groups.reduce(np.add, known.astype(float))
    squares = groups.reduce(np.add, np.nan_to_num(groups.centred(values)) ** 2)
    several = counts > 1
    freedom = np.where(several, counts - 1, 0).sum(0)
    highest = groups.reduce(np.maximum, np.where(known, values, -np.inf))
    lowest = groups.reduce(np.minimum, np.where(known, values, np.inf))
    vary = (several & (highest - np.where(several, lowest, 0.0) > _EQUAL)).sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return Within(np.where(several, squares, 0.0).sum(0) / freedom, vary / several.sum(0))


def mean_estimates(values: Floats, groups: Groups) -> list[Estimate]:
    """Return the mean of each column with its cluster-robust t interval, as `core.estimate.mean_estimate`."""
    found = []
    for mean, variance, count, n in zip(*_means(values, groups), strict=True):
        half = t_quantile(int(count) - 1) * float(np.sqrt(variance)) if count >= MIN_CLUSTERS else None
        if not n:
            found.append(Estimate(None, null_reason="no values"))
        elif half is None:
            found.append(Estimate(float(mean), null_reason=no_interval(int(count))))
        else:
            found.append(Estimate(float(mean), float(mean) - half, float(mean) + half))
    return found


def met_estimates(values: Floats, groups: Groups) -> list[Estimate]:
    """Return the share of values of 0.5 or more in each column, with Wilson's interval.

    Its size is the effective one: p(1-p) over the cluster-robust variance of p, at most the number of values; where no
    value differs, the number of clusters.
    """
    met = np.where(np.isnan(values), np.nan, values >= 0.5)
    found = []
    for share, variance, clusters, n in zip(*_means(met, groups), strict=True):
        if not n:
            found.append(Estimate(None, null_reason="no values"))
            continue
        size = min(n, share * (1 - share) / variance) if variance > 0 else clusters
        found.append(Estimate(float(share), *wilson(float(share), float(size))))
    return found


def _means(values: Floats, groups: Groups) -> tuple[Floats, Floats, Floats, Floats]:
    """Return by column the mean, its CR1 variance, the number of clusters, and that of values."""
    known = ~np.isnan(values)
    n = known.sum(0).astype(float)
    mean = np.where(known, values, 0.0).sum(0) / np.maximum(n, 1)
    residuals = groups.reduce(np.add, np.where(known, values - mean, 0.0))
    clusters = (groups.reduce(np.add, known.astype(float)) > 0).sum(0).astype(float)
    correction = clusters / np.maximum(clusters - 1, 1)
    return mean, correction * (residuals**2).sum(0) / np.maximum(n, 1) ** 2, clusters, n


def correlations(values: Floats) -> tuple[Floats, Ints]:
    """Return Pearson's correlation of each two columns, and over how many rows: those with both values.

    NaN where a column does not vary over these rows, and everywhere with fewer rows than `MIN_COMPLETIONS`.
    """
    if len(values) < MIN_COMPLETIONS:
        return np.full((values.shape[1],) * 2, np.nan), np.zeros((values.shape[1],) * 2, np.int64)
    known = ~np.isnan(values)
    mask = known.astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        centred = np.where(known, values - np.where(known, values, 0).sum(0) / mask.sum(0), 0.0)
        n = mask.T @ mask
        means = centred.T @ mask / n
        variance = (centred**2).T @ mask / n - means**2
        covariance = centred.T @ centred / n - means * means.T
        found = covariance / np.sqrt(variance * variance.T)
    found[(variance <= _EQUAL**2) | (variance.T <= _EQUAL**2)] = np.nan
    return np.clip(found, -1.0, 1.0), n.astype(np.int64)


def length_correlations(values: Floats, lengths: Floats, groups: Groups) -> Floats:
    """Return the correlation [C] of each criterion with the logarithm of the length, both less their group's mean.

    Where no group has two completions, over all completions. NaN with fewer than `MIN_COMPLETIONS`.
    """
    logs = np.log1p(lengths)
    found = np.full(values.shape[1], np.nan)
    if len(values) < MIN_COMPLETIONS:
        return found
    for column in range(values.shape[1]):
        rows = np.stack([values[:, column], np.where(np.isnan(values[:, column]), np.nan, logs)], 1)
        both = groups.centred(rows) if groups.sizes.max(initial=0) > 1 else rows
        both = both[~np.isnan(both[:, 0])]
        if len(both) >= MIN_COMPLETIONS and (both.std(0) > _EQUAL).all():
            found[column] = np.corrcoef(both, rowvar=False)[0, 1]
    return found


def reward_vector(rubric: Rubric, values: Floats) -> Floats:
    """Return the rewards [N] of `core.reward.reward`, NaN where there is none.

    ``values`` [N, C] are NaN where a criterion was not judged.
    """
    how = formula_for(rubric, rubric.formula)
    judged = ~np.isnan(values)
    weights = np.array([how.weights(rubric)[criterion.key] for criterion in rubric.criteria])
    covered = judged @ weights / (weights.sum() or 1.0)
    rewards = contribution_matrix(rubric, values).sum(1)
    required = np.array([criterion.required for criterion in rubric.criteria])
    pitfall = np.array([criterion.weight < 0 for criterion in rubric.criteria])
    vetoed = (required & judged & ((values >= 0.5) == pitfall)).any(1)
    rewards = np.where(vetoed, np.minimum(rewards, 0.0), rewards)
    if how.clip is not None:
        rewards = np.clip(rewards, *how.clip)
    whole = judged.all(1)
    least = (covered >= rubric.min_coverage - 1e-12) & (covered > 0)
    known = whole | (least & (not how.complete) & ~(required & ~judged).any(1))
    return np.asarray(np.where(known, rewards, np.nan), float)
