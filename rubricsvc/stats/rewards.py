"""Rewards of many completions under one rubric at once. Needs the extra ``judging``."""

from __future__ import annotations

import numpy as np

from rubricsvc.core.formulas import formula_for
from rubricsvc.core.rubric import Rubric
from rubricsvc.stats.intervals import Floats
from rubricsvc.stats.reward_variance import contribution_matrix


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
