"""Weights fitted to people's labels on a part of the search part. Needs the extra ``judging``."""

from __future__ import annotations

import numpy as np

from rubricsvc.core.evolution import Objective
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.stats.evolution.objectives import Target
from rubricsvc.stats.intervals import Floats
from rubricsvc.stats.preferences import differences
from rubricsvc.stats.weight_fit import PENALTIES, check_weights_decide, scaled_weights
from rubricsvc.stats.weight_problems import PreferenceProblem, Problem, ScoreProblem

PART = 0.5
"""Share of the prompts that a fit is made on, so that several fits differ."""
MIN_ROWS = 10


def weights_decide(rubric: Rubric) -> bool:
    """Whether the formula orders completions by Σ weight · value."""
    try:
        check_weights_decide(rubric)
    except InvalidError:
        return False
    return True


def fitted_weights(
    random: np.random.Generator, rubric: Rubric, values: Floats, target: Target, objective: Objective
) -> Floats | None:
    """Return weights fitted on some prompts with a random penalty; None where they cannot be fitted.

    They keep their signs and the sum of their absolute values. ``values`` [N, C] are those of the rubric's criteria.
    """
    old = np.array([one.weight for one in rubric.criteria])
    clusters = np.unique(target.clusters[target.rows(objective)])
    drawn = random.choice(clusters, max(1, round(PART * len(clusters))), replace=False)
    penalty = float(random.choice(PENALTIES))
    if objective == "verdicts" or not weights_decide(rubric):
        return None
    problem = _problem(target.of_rows(np.isin(target.clusters, drawn)), objective, values, np.where(old < 0, -1.0, 1.0))
    if len(problem.values) < MIN_ROWS:
        return None
    varies = np.ptp(problem.values, axis=0) > 1e-9
    if not varies.any():
        return None
    return scaled_weights(problem.fit(np.arange(len(problem.values)), penalty).weights, old, varies)


def _problem(target: Target, objective: Objective, values: Floats, signs: Floats) -> Problem:
    if objective == "preferences":
        x = differences(values, target.pairs)
        known = ~np.isnan(x).any(1)
        return PreferenceProblem(x[known], target.clusters[target.pairs[known, 0]], signs)
    x = values[target.scored]
    known = ~np.isnan(x).any(1)
    rows = target.scored[known]
    return ScoreProblem(x[known], target.scores[known], ["people"] * len(rows), target.clusters[rows], signs)
