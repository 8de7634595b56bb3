"""What each criterion adds to the variance of the reward, on plain arrays. Needs the extra ``judging``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rubricsvc.core.formulas import FormulaError, formula_for
from rubricsvc.core.reward import raw_reward
from rubricsvc.core.rubric import Rubric
from rubricsvc.stats.intervals import Floats

_PROBES = 3


def contribution_matrix(rubric: Rubric, values: Floats) -> Floats:
    """Return each criterion's contribution to each reward [N, C], before veto and clip; rows sum to that reward.

    ``values`` [N, C] are NaN where a criterion was not judged: it contributes 0. A row is NaN where the formula has no
    value. Rows with the same judged criteria are computed at once if the formula is affine in them.
    """
    found = np.full(values.shape, np.nan)
    judged = ~np.isnan(values)
    if judged.all():
        return _contributions(rubric, range(values.shape[1]), values)
    patterns, pattern_of = np.unique(judged, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        rows, columns = np.flatnonzero(pattern_of.reshape(-1) == number), np.flatnonzero(pattern)
        if len(columns):
            parts = np.zeros((len(rows), values.shape[1]))
            parts[:, columns] = _contributions(rubric, columns.tolist(), values[np.ix_(rows, columns)])
            found[rows] = parts
    return found


def affine(rubric: Rubric, columns: Sequence[int] | None = None) -> tuple[Floats, Floats] | None:
    """Return (base, slopes) if each contribution is base + slope · its own value, else None; found by probing."""
    used = list(range(len(rubric.criteria))) if columns is None else list(columns)
    base = _contribution(rubric, used, np.zeros(len(used)))
    slopes = _contribution(rubric, used, np.ones(len(used))) - base
    probes = np.random.default_rng(0).random((_PROBES, len(used)))
    same = all(
        np.allclose(_contribution(rubric, used, probe), base + slopes * probe, rtol=1e-9, atol=1e-12)
        for probe in probes
    )
    return (base, slopes) if same else None


def _contributions(rubric: Rubric, columns: Sequence[int], values: Floats) -> Floats:
    if len(values) > _PROBES + 2 and (found := affine(rubric, columns)) is not None:
        base, slopes = found
        return base + slopes * values
    distinct, row_of = np.unique(values, axis=0, return_inverse=True)
    each = np.array([_contribution(rubric, columns, row) for row in distinct])
    return np.asarray(each[row_of.reshape(-1)], float)


def _contribution(rubric: Rubric, columns: Sequence[int], values: Floats) -> Floats:
    keys = [rubric.criteria[column].key for column in columns]
    try:
        _, parts = raw_reward(
            rubric, dict(zip(keys, values.tolist(), strict=True)), formula_for(rubric, rubric.formula)
        )
    except FormulaError:
        return np.full(len(keys), np.nan)
    return np.array([parts[key] for key in keys])


def variance_shares(contributions: Floats) -> Floats:
    """Return cov(contribution, reward) / var(reward) [C], of contributions [N, C] whose rows sum to the reward.

    The shares sum to 1. One is negative where a criterion lowers the rewards that others raise. NaN without a variance.
    """
    if not len(contributions):
        return np.full(contributions.shape[1], np.nan)
    centred = contributions - contributions.mean(0)
    rewards = centred.sum(1)
    variance = float(rewards @ rewards)
    scale = float(np.square(contributions).sum())
    if variance <= 1e-18 * max(scale, 1e-300):
        return np.full(contributions.shape[1], np.nan)
    return np.asarray(rewards @ centred / variance, float)
