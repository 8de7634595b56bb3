"""How far a rubric's rewards agree with people's labels, and changes of rubrics. Needs the extra ``judging``.

============  ==================================  ============================================
objective     unit                                value of a unit
============  ==================================  ============================================
preferences   two completions of one prompt       1 in the order of the person, 0.5 tied, 0
scores        a completion with overall scores    minus the squared error of the mean score
============  ==================================  ============================================

An objective is the mean over its units. For ``scores``, rewards are first put on people's scale by a straight line that
does not fall, fitted on the part that candidates are scored on: a rubric that only shifts or stretches its rewards
gains nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rubricsvc.core.evolution import HeldOutResult, Objective
from rubricsvc.core.reward import check_formula
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.stats.criteria import mean_estimates, reward_vector
from rubricsvc.stats.intervals import Floats, Ints
from rubricsvc.stats.paired import differences
from rubricsvc.stats.weight_fit import (
    Problem,
    best_penalty,
    check_weights_decide,
    scaled_weights,
)

OBJECTIVES: tuple[Objective, ...] = ("preferences", "scores")
MIN_SCORED = 0.9
"""Share of the units that a candidate must have a value for."""
MIN_ROWS = 10
_TIE = 1e-12


@dataclass(frozen=True)
class Labels:
    """What people found of N completions.

    Attributes:
        clusters: What is independent [N]: the prompts, or the completions where all have one prompt.
        pairs: Rows (preferred, other) [P, 2].
        scored: Rows [S] with ``scores`` [S], the mean of people's overall scores.
    """

    clusters: NDArray[Any]
    pairs: Ints
    scored: Ints
    scores: Floats

    def of_rows(self, kept: NDArray[np.bool_]) -> Labels:
        """Return what concerns these rows [N] only; the numbers of rows stay."""
        pairs = self.pairs[kept[self.pairs].all(1)] if len(self.pairs) else self.pairs
        return Labels(self.clusters, pairs, self.scored[kept[self.scored]], self.scores[kept[self.scored]])

    def rows(self, objective: Objective) -> Ints:
        """Return a row for each unit."""
        return self.pairs[:, 0] if objective == "preferences" else self.scored

    def prompts(self, objective: Objective) -> int:
        """Return the number of clusters that have units."""
        return len(np.unique(self.clusters[self.rows(objective)]))

    def varies(self, objective: Objective) -> bool:
        """Whether people distinguished anything."""
        return len(self.pairs) > 0 if objective == "preferences" else bool(len(self.scores) and np.ptp(self.scores) > 0)


def rewards_of(rubric: Rubric, values: Mapping[str, Floats]) -> Floats:
    """Return the rewards [N] by values [N] of each criterion key, NaN where there is none."""
    return reward_vector(rubric, np.column_stack([values[one.key] for one in rubric.criteria]))


def line_of(labels: Labels, rewards: Floats) -> tuple[float, float]:
    """Return intercept and slope from rewards to people's scores by least squares; flat where the best line falls."""
    known = ~np.isnan(rewards[labels.scored])
    x, y = rewards[labels.scored][known], labels.scores[known]
    if not len(x):
        return 0.0, 0.0
    centred = x - x.mean()
    variance = float(centred @ centred)
    slope = max(float(centred @ y) / variance, 0.0) if variance > _TIE else 0.0
    return float(y.mean() - slope * x.mean()), slope


def unit_values(
    objective: Objective, labels: Labels, rewards: Floats, line: tuple[float, float] | None = None
) -> Floats:
    """Return the value of each unit, NaN where there is none; without a ``line`` it is fitted on ``labels``."""
    if objective == "preferences":
        margins = rewards[labels.pairs[:, 0]] - rewards[labels.pairs[:, 1]]
        return np.where(np.isnan(margins), np.nan, (margins > _TIE) + 0.5 * (np.abs(margins) <= _TIE))
    intercept, slope = line or line_of(labels, rewards)
    return np.asarray(-np.square(intercept + slope * rewards[labels.scored] - labels.scores), float)


def score_of(objective: Objective, labels: Labels, rewards: Floats) -> float | None:
    """Return the objective of a rubric; None where too many units have no value."""
    units = unit_values(objective, labels, rewards)
    known = ~np.isnan(units)
    return float(units[known].mean()) if len(units) and known.mean() >= MIN_SCORED else None


def held_out_result(
    objective: Objective, search: Labels, held_out: Labels, start: Floats, best: Floats
) -> HeldOutResult:
    """Return the comparison of two rubrics by their rewards [N]; lines to people's scale are those of ``search``."""
    before, after = (unit_values(objective, held_out, one, line_of(search, one)) for one in (start, best))
    known = ~(np.isnan(before) | np.isnan(after))
    if not known.any():
        raise InvalidError("no held-out unit has a value with both rubrics", hint="see the failures of its jobs")
    clusters = held_out.clusters[held_out.rows(objective)[known]]
    (difference,) = mean_estimates((after - before)[known, None], clusters)
    return HeldOutResult(
        prompts=held_out.prompts(objective),
        units=int(known.sum()),
        left_out=int((~known).sum()),
        start=float(before[known].mean()),
        best=float(after[known].mean()),
        difference=difference,
        gain=difference.low is not None and difference.low > 0,
    )


def checked(rubric: Rubric, criteria: Sequence[Criterion]) -> Rubric | None:
    """Return the rubric with these criteria; None where its formula does not take them, or nothing changes."""
    try:
        changed = Rubric.model_validate(rubric.with_criteria(list(criteria)).model_dump())
        check_formula(changed)
    except ValueError:
        return None
    return changed if changed != rubric else None


def fitted(rubric: Rubric, labels: Labels, values: Mapping[str, Floats], objective: Objective) -> Rubric | None:
    """Return the rubric with weights of the same signs that are fitted to labels; None where they cannot be.

    Args:
        rubric: The rubric.
        labels: What weights are fitted to; the penalty is that of least cross-validated loss.
        values: Values [N] of each criterion key.
        objective: What is maximized.
    """
    try:
        check_weights_decide(rubric)
    except InvalidError:
        return None
    old = np.array([one.weight for one in rubric.criteria])
    signs, columns = np.where(old < 0, -1.0, 1.0), np.column_stack([values[one.key] for one in rubric.criteria])
    if objective == "preferences":
        x = differences(columns, labels.pairs)
        known = ~np.isnan(x).any(1)
        problem = Problem(x[known], labels.clusters[labels.pairs[known, 0]], signs)
    else:
        known = ~np.isnan(columns[labels.scored]).any(1)
        rows, people = labels.scored[known], ["people"] * int(known.sum())
        problem = Problem(columns[rows], labels.clusters[rows], signs, labels.scores[known], people)
    everything = np.arange(len(problem.values))
    if len(everything) < MIN_ROWS or len(np.unique(problem.clusters)) < 2:
        return None
    varies = np.ptp(problem.values, axis=0) > 1e-9
    solution = problem.fit(everything, best_penalty(problem, everything, 0))
    weights = scaled_weights(solution.weights, old, varies) if varies.any() else None
    if weights is None:
        return None
    rounded = [float(f"{weight:.4g}") for weight in weights.tolist()]
    pairs = zip(rubric.criteria, rounded, strict=True)
    return checked(rubric, [one.model_copy(update={"weight": weight}) for one, weight in pairs])
