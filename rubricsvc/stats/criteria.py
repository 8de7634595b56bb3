"""Figures of criteria over completions, on plain arrays. Needs the extra ``judging``.

``values`` is [N, C]: the value of each of C criteria on each of N completions, in [0, 1], NaN where a verdict has none.
``groups`` [N] is the prompt of each completion, ``clusters`` [N] what is independent: the prompts, or each completion
where all have one prompt.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.reward import FormulaError, formula_for, raw_reward
from rubricsvc.core.rubric import Criterion, Rubric, pools_of
from rubricsvc.stats.estimates import independent, mean_estimate
from rubricsvc.stats.intervals import Floats, Ints, wilson

MIN_COMPLETIONS = 30  # correlations need as many completions
_EQUAL = 1e-9
_PROBES = 3


class VerdictMatrix(NamedTuple):
    """The ids, prompts, stored rewards and lengths in characters [N] of N completions, and of C criteria.

    ``values`` [N, C] are those of the verdicts. NaN is no reward or value; ``failed`` and ``abstained`` [C] are counts.
    Of `pooled` criteria the ``shares`` [N, C] that are met and the contributions are given, too.
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
    shares: Floats | None = None
    pooled_contributions: Floats | None = None

    @property
    def contributions(self) -> Floats:
        """The contributions [N, C] to known rewards, as of `contribution_matrix`."""
        if self.pooled_contributions is not None:
            return self.pooled_contributions
        return contribution_matrix(self.rubric, np.where(np.isnan(self.rewards)[:, None], np.nan, self.values))

    @property
    def independent(self) -> Ints:
        """What an interval treats as `independent`."""
        return np.asarray(independent(self.prompts.tolist(), self.completions.tolist()), np.int64)


def pooled(matrices: Sequence[VerdictMatrix], tags: Mapping[int, Sequence[str]], pool: str) -> VerdictMatrix:
    """Return the verdicts under several rubrics as those of one, whose criteria are the pools (`pools_of`).

    A value is the mean over the criteria of a pool under which a completion was judged; ``tags`` are those of prompts.
    """
    total = sum(len(one.completions) for one in matrices)
    sums: dict[str, Floats] = defaultdict(lambda: np.zeros((4, total)))  # values, their sum, those met, contributions
    counts: dict[str, Floats] = defaultdict(lambda: np.zeros(3))  # failed, abstained, all
    start = 0
    for one in matrices:
        of_rows, contributions = [tuple(tags[id_]) for id_ in one.prompts.tolist()], one.contributions
        for given in set(of_rows):
            rows = np.array([place for place, each in enumerate(of_rows) if each == given])
            for place, criterion in enumerate(one.rubric.criteria):
                column, parts = one.values[rows, place], np.nan_to_num(contributions[rows, place])
                cells = np.stack([~np.isnan(column), np.nan_to_num(column), column >= 0.5, parts])
                unscored = np.array([one.failed[place], one.abstained[place], len(of_rows)]) * len(rows) / len(of_rows)
                for name in pools_of(criterion, given, pool):
                    sums[name][:, start + rows] += cells
                    counts[name] += unscored
        start += len(of_rows)
    names = sorted(sums)
    known, values, met, parts = np.stack([sums[name] for name in names], axis=2)
    known = np.where(known > 0, known, np.nan)
    failed, abstained, asked = np.array([counts[name] for name in names]).T
    completions, prompts, rewards, lengths = (np.concatenate([one[n] for one in matrices]) for n in range(3, 7))
    weights = [-1.0 if name.endswith("(pitfalls)") else 1.0 for name in names]
    rubric = Rubric(criteria=tuple(Criterion(key=n, text=n, weight=w) for n, w in zip(names, weights, strict=True)))
    return VerdictMatrix(
        rubric_id=0,
        name=f"{len(matrices)} rubrics",
        rubric=rubric,
        completions=completions,
        prompts=prompts,
        rewards=rewards,
        lengths=lengths,
        values=values / known,
        failed=failed / asked * total,
        abstained=abstained / asked * total,
        shares=met / known,
        pooled_contributions=np.where(np.isnan(rewards)[:, None], np.nan, parts),
    )


def group_sums(values: Floats, groups: NDArray[Any]) -> tuple[Floats, Floats, Ints]:
    """Return by group the sums of its known values [G, C] and their numbers [G, C], and the group of each row [N]."""
    names, of_row = np.unique(groups, return_inverse=True)
    sums, counts = (np.zeros((len(names), values.shape[1])) for _ in range(2))
    np.add.at(sums, of_row, np.nan_to_num(values))
    np.add.at(counts, of_row, ~np.isnan(values))
    return sums, counts, of_row


def centred(values: Floats, groups: NDArray[Any]) -> Floats:
    """Return the values less the mean of those that are known of their group."""
    sums, counts, of_row = group_sums(values, groups)
    return np.asarray(values - (sums / np.maximum(counts, 1.0))[of_row], float)


def within_groups(values: Floats, groups: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return how far values vary among the completions of one prompt: what a policy can learn from.

    Returns:
        The variance [C], pooled over groups: Σ (x - mean of its group)² / Σ (size - 1); and the share [C] of the groups
        with two or more values in which they are not all the same. Both are NaN without such groups.
    """
    squares, counts, _ = group_sums(centred(values, groups) ** 2, groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = squares.sum(0) / np.maximum(counts - 1, 0).sum(0)
        return variance, (squares > _EQUAL**2).sum(0) / (counts > 1).sum(0)


def mean_estimates(values: Floats, clusters: NDArray[Any], *, share: bool = False) -> list[Estimate]:
    """Return the `mean_estimate` of the known values of each column.

    With ``share`` values are 0 or 1, and Wilson's interval is that of as many rows as there are clusters.
    """
    found = []
    for column in values.T:
        rows = np.flatnonzero(~np.isnan(column))
        known, of = column[rows], clusters[rows]
        one = mean_estimate(known.tolist(), of.tolist())
        if share and one.value is not None and one.low is not None:
            one = Estimate(one.value, *wilson(one.value, len(np.unique(of))))
        found.append(one)
    return found


def correlations(values: Floats) -> tuple[Floats, Ints]:
    """Return Pearson's correlation of each two columns, and over how many rows: those with both values.

    NaN where a column does not vary over these rows, and everywhere with fewer rows than `MIN_COMPLETIONS`.
    """
    if len(values) < MIN_COMPLETIONS:
        return np.full((values.shape[1],) * 2, np.nan), np.zeros((values.shape[1],) * 2, np.int64)
    known = ~np.isnan(values)
    mask = known.astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        shifted = np.where(known, values - np.where(known, values, 0).sum(0) / mask.sum(0), 0.0)
        n = mask.T @ mask
        means = shifted.T @ mask / n
        variance = (shifted**2).T @ mask / n - means**2
        covariance = shifted.T @ shifted / n - means * means.T
        found = covariance / np.sqrt(variance * variance.T)
    found[(variance <= _EQUAL**2) | (variance.T <= _EQUAL**2)] = np.nan
    return np.clip(found, -1.0, 1.0), n.astype(np.int64)


def length_correlations(values: Floats, lengths: Floats, groups: NDArray[Any]) -> Floats:
    """Return the correlation [C] of each criterion with the logarithm of the length, both less their group's mean.

    Where no group has two completions, over all completions. NaN with fewer than `MIN_COMPLETIONS`.
    """
    logs = np.log1p(lengths)
    found = np.full(values.shape[1], np.nan)
    for column in range(values.shape[1]):
        rows = np.stack([values[:, column], np.where(np.isnan(values[:, column]), np.nan, logs)], 1)
        both = centred(rows, groups) if len(np.unique(groups)) < len(groups) else rows
        both = both[~np.isnan(both[:, 0])]
        if len(both) >= MIN_COMPLETIONS and (both.std(0) > _EQUAL).all():
            found[column] = np.corrcoef(both, rowvar=False)[0, 1]
    return found


def contribution_matrix(rubric: Rubric, values: Floats) -> Floats:
    """Return each criterion's contribution to each reward [N, C], before veto and clip; rows sum to that reward.

    A criterion that was not judged contributes 0. A row is NaN where the formula has no value.
    """
    keys, formula = [one.key for one in rubric.criteria], formula_for(rubric, rubric.formula)
    judged = ~np.isnan(values)
    if len(values) > _PROBES + 2 and judged.all() and (found := affine(rubric)) is not None:
        return np.asarray(found[0] + found[1] * values, float)
    distinct, row_of = np.unique(np.where(judged, values, -1.0), axis=0, return_inverse=True)
    each = np.full(distinct.shape, np.nan)
    for number, row in enumerate(distinct.tolist()):
        known = {key: value for key, value in zip(keys, row, strict=True) if value >= 0}
        with suppress(FormulaError):
            parts = raw_reward(rubric, known, formula)[1] if known else {}
            each[number] = [parts.get(key, 0.0) for key in keys] if known else np.nan
    return np.asarray(each[row_of.reshape(-1)], float)


def affine(rubric: Rubric) -> tuple[Floats, Floats] | None:
    """Return (base, slopes) if each contribution is base + slope · its own value, else None; found by probing."""
    size = len(rubric.criteria)
    probes = np.vstack([np.zeros(size), np.ones(size), np.random.default_rng(0).random((_PROBES, size))])
    parts = contribution_matrix(rubric, probes)
    base, slopes = parts[0], parts[1] - parts[0]
    return (base, slopes) if np.allclose(parts, base + slopes * probes, rtol=1e-9, atol=1e-12) else None


def variance_shares(contributions: Floats) -> Floats:
    """Return cov(contribution, reward) / var(reward) [C], of contributions [N, C] whose rows sum to the reward.

    The shares sum to 1. One is negative where a criterion lowers the rewards that others raise. NaN without a variance.
    """
    shifted = contributions - contributions.mean(0) if len(contributions) else contributions
    rewards = shifted.sum(1)
    variance = float(rewards @ rewards)
    if variance <= 1e-18 * max(float(np.square(contributions).sum()), 1e-300):
        return np.full(contributions.shape[1], np.nan)
    return np.asarray(rewards @ shifted / variance, float)
