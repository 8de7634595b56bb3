"""What the best candidate gains over the start on held-out prompts. Needs the extra ``judging``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rubricsvc.core.evolution import HeldOutResult, Objective, ObjectiveChange, PairedTest
from rubricsvc.errors import InvalidError
from rubricsvc.stats.criteria import Groups, mean_estimates
from rubricsvc.stats.evolution.objectives import OBJECTIVES, Outcome, Target, decisions, line_of, unit_values
from rubricsvc.stats.intervals import Floats


def held_out_result(
    objective: Objective, search: Target, held_out: Target, start: Outcome, best: Outcome
) -> HeldOutResult:
    """Return the comparison on the held-out part; lines to people's scale are those of the search part."""
    others = [one for one in OBJECTIVES if one != objective]
    changes = [_change(one, search, held_out, start, best) for one in (objective, *others)]
    mark = float(search.scores.mean()) if len(search.scores) else 0.5
    right = [decisions(objective, held_out, one, line_of(search, one), mark) for one in (start, best)]
    clusters = held_out.clusters[held_out.rows(objective)]
    first = changes[0]
    if first is None:
        raise InvalidError("no held-out unit has a value with both candidates", hint="see the failures of its jobs")
    return HeldOutResult(
        prompts=held_out.prompts(objective),
        objectives=tuple(one for one in changes if one is not None),
        mcnemar=paired_test(right[1] - right[0]),
        by_prompt=paired_test(_sums(right[1] - right[0], clusters)),
        gain=first.difference.low is not None and first.difference.low > 0,
    )


def _change(
    objective: Objective, search: Target, held_out: Target, start: Outcome, best: Outcome
) -> ObjectiveChange | None:
    before, after = (unit_values(objective, held_out, one, line_of(search, one)) for one in (start, best))
    known = ~(np.isnan(before) | np.isnan(after))
    if not known.any():
        return None
    clusters = held_out.clusters[held_out.rows(objective)[known]]
    (difference,) = mean_estimates((after - before)[known, None], Groups(clusters))
    return ObjectiveChange(
        objective=objective,
        units=int(known.sum()),
        left_out=int((~known).sum()),
        start=float(before[known].mean()),
        best=float(after[known].mean()),
        difference=difference,
    )


def _sums(differences: Floats, clusters: NDArray[Any]) -> Floats:
    known = ~np.isnan(differences)
    _, of_row = np.unique(clusters[known], return_inverse=True)
    return np.asarray(np.bincount(of_row.reshape(-1), differences[known]), float)


def paired_test(differences: Floats) -> PairedTest:
    """Return the exact test of McNemar on differences: above 0 is better, below 0 worse, 0 and NaN do not count."""
    better, worse = int((differences > 1e-9).sum()), int((differences < -1e-9).sum())
    p = float(stats.binomtest(better, better + worse).pvalue) if better + worse else 1.0
    return PairedTest(better=better, worse=worse, p=p)
