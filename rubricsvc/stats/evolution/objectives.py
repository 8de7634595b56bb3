"""What people found, and how far a candidate agrees with it. Every objective is a mean over units.

=============  ======================================  ===========================================
objective      unit                                    value of a unit
=============  ======================================  ===========================================
preferences    two completions of one prompt           1 in the order of the person, 0.5 tied, 0
scores         a completion with overall scores        minus the squared error of the mean score
verdicts       a person's label on one criterion       1 if the verdict is met where the label is
=============  ======================================  ===========================================

For ``scores``, rewards are first put on people's scale by a straight line that does not fall, fitted on the part that
candidates are scored on: a rubric that only shifts or stretches its rewards gains nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rubricsvc.core.evolution import Objective
from rubricsvc.stats.intervals import Floats, Ints

OBJECTIVES: tuple[Objective, ...] = ("preferences", "scores", "verdicts")
MIN_RUNG_UNITS = 12
"""Units of the smallest part that candidates are compared on."""
RUNGS = (0.25, 0.5, 1.0)
MIN_SCORED = 0.9
"""Share of the units that a candidate must have a value for."""
_TIE = 1e-12


@dataclass(frozen=True)
class Target:
    """What people found of N completions.

    Attributes:
        clusters: What is independent [N]: the prompts, or the completions where all have one prompt.
        pairs: Rows (preferred, other) [P, 2].
        scored: Rows [S] with ``scores`` [S], the mean of people's overall scores.
        labelled: Rows [L] with labels on the criteria ``keys`` [L]; ``met`` [L] whether people found it met.
    """

    clusters: NDArray[Any]
    pairs: Ints
    scored: Ints
    scores: Floats
    labelled: Ints
    keys: Sequence[str]
    met: NDArray[np.bool_]

    def of_rows(self, kept: NDArray[np.bool_]) -> Target:
        """Return what concerns these rows [N] only; the numbers of rows stay."""
        labelled = kept[self.labelled]
        return Target(
            clusters=self.clusters,
            pairs=self.pairs[kept[self.pairs].all(1)] if len(self.pairs) else self.pairs,
            scored=self.scored[kept[self.scored]],
            scores=self.scores[kept[self.scored]],
            labelled=self.labelled[labelled],
            keys=[key for key, one in zip(self.keys, labelled.tolist(), strict=True) if one],
            met=self.met[labelled],
        )

    def rows(self, objective: Objective) -> Ints:
        """Return a row for each unit."""
        by_objective = {"preferences": self.pairs[:, 0], "scores": self.scored, "verdicts": self.labelled}
        return by_objective[objective]

    def prompts(self, objective: Objective) -> int:
        """Return the number of clusters that have units."""
        return len(np.unique(self.clusters[self.rows(objective)]))

    def varies(self, objective: Objective) -> bool:
        """Whether people distinguished anything."""
        if objective == "preferences":
            return len(self.pairs) > 0
        return bool(np.ptp(self.scores) > 0) if objective == "scores" and len(self.scores) else len(set(self.met)) > 1


class Outcome(NamedTuple):
    """What a candidate gives to N completions: rewards [N] and values by criterion [N], NaN where there is none."""

    rewards: Floats
    values: Mapping[str, Floats]


class Line(NamedTuple):
    """A line from rewards to people's scores."""

    intercept: float
    slope: float


def line_of(target: Target, outcome: Outcome) -> Line:
    """Return the least-squares line, flat where the best one falls."""
    rewards = outcome.rewards[target.scored]
    known = ~np.isnan(rewards)
    x, y = rewards[known], target.scores[known]
    if not len(x):
        return Line(float(target.scores.mean()) if len(target.scores) else 0.0, 0.0)
    centred = x - x.mean()
    variance = float(centred @ centred)
    slope = max(float(centred @ y) / variance, 0.0) if variance > _TIE else 0.0
    return Line(float(y.mean() - slope * x.mean()), slope)


def unit_values(objective: Objective, target: Target, outcome: Outcome, line: Line | None = None) -> Floats:
    """Return the value of each unit, NaN where there is none; without a ``line`` it is fitted on ``target``."""
    if objective == "preferences":
        margins = _margins(target, outcome)
        return np.where(np.isnan(margins), np.nan, (margins > _TIE) + 0.5 * (np.abs(margins) <= _TIE))
    if objective == "scores":
        return np.asarray(-np.square(_predicted(target, outcome, line) - target.scores), float)
    return _agreements(target, outcome)


def decisions(
    objective: Objective, target: Target, outcome: Outcome, line: Line, pass_mark: float
) -> NDArray[np.float64]:
    """Return 1 for each unit that is decided as people did, else 0; NaN without a value. A tied pair has 0.5.

    Scores are decided right if the prediction and the score are on the same side of ``pass_mark``.
    """
    if objective == "scores":
        predicted = _predicted(target, outcome, line)
        right = (predicted >= pass_mark) == (target.scores >= pass_mark)
        return np.where(np.isnan(predicted), np.nan, right.astype(float))
    return unit_values(objective, target, outcome)


def _margins(target: Target, outcome: Outcome) -> Floats:
    return np.asarray(outcome.rewards[target.pairs[:, 0]] - outcome.rewards[target.pairs[:, 1]], float)


def _predicted(target: Target, outcome: Outcome, line: Line | None) -> Floats:
    found = line_of(target, outcome) if line is None else line
    return np.asarray(found.intercept + found.slope * outcome.rewards[target.scored], float)


def _agreements(target: Target, outcome: Outcome) -> Floats:
    missing = np.full(len(outcome.rewards), np.nan)
    values = np.array(
        [outcome.values.get(key, missing)[row] for row, key in zip(target.labelled.tolist(), target.keys, strict=True)],
        float,
    )
    return np.where(np.isnan(values), np.nan, ((values >= 0.5) == target.met).astype(float))


def score_of(objective: Objective, target: Target, outcome: Outcome) -> float | None:
    """Return the objective of a candidate; None where too many units have no value."""
    units = unit_values(objective, target, outcome)
    known = ~np.isnan(units)
    if not len(units) or known.mean() < MIN_SCORED:
        return None
    return float(units[known].mean())


def rungs(objective: Objective, target: Target, search: NDArray[np.bool_], seed: int) -> Iterator[NDArray[np.bool_]]:
    """Yield the rows [N] of growing parts of the search part, whole prompts each; the last one is all of it."""
    order = np.random.default_rng([seed, 1]).permutation(np.unique(target.clusters[search]))
    for share in RUNGS:
        part = search & np.isin(target.clusters, order[: max(1, round(share * len(order)))])
        if share == 1.0 or len(target.of_rows(part).rows(objective)) >= MIN_RUNG_UNITS:
            yield part
