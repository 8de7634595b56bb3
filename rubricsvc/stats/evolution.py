"""What labels or rollouts show of criteria and of drafts, and which are kept (docs/evolving.md). Needs ``judging``.

Separation is the standard deviation of a criterion's values within a group of completions: what GRPO can learn from.
Agreement is the share of pairs of completions that a criterion, or the rewards of a rubric, order as people or a
trusted judge do; ties count half.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev

import numpy as np

from rubricsvc.core.evolution import BufferedCriterion, HeldOutResult, RetirementReason
from rubricsvc.errors import InvalidError
from rubricsvc.stats.criteria import mean_estimates
from rubricsvc.stats.intervals import Floats, Ints
from rubricsvc.stats.paired import differences, ordered
from rubricsvc.stats.ranking import concordance

Values = Sequence[float | None]
"""A criterion's value for each completion of a group; None where it was not judged."""

MIN_SHARE = 0.5
"""Share of a group that must be judged for a trial to count."""
MIN_ORDERED = 0.9
"""Share of the pairs that a draft must have rewards for."""


def measured(entry: BufferedCriterion, step: int, values: Values, reference: Values = ()) -> BufferedCriterion | None:
    """Return the entry after a trial at ``step``; None if too few completions were judged.

    ``values`` are those of its criterion in a group of completions, ``reference`` what the trusted judge or people say
    of each; empty without one.
    """
    known = [value for value in values if value is not None]
    if len(known) < max(2, MIN_SHARE * len(values)):
        return None
    both = zip(values, reference, strict=bool(reference))
    net_concordant, _, different = concordance([(a, b) for a, b in both if a is not None and b is not None])
    found = {"separation": pstdev(known), "mean": fmean(known), "pairs": entry.pairs + different}
    found["agreeing"] = entry.agreeing + (different + net_concordant) / 2
    return entry.model_copy(update={"trials": entry.trials + 1, "tested_step": step, **found})


def selected(
    entries: Sequence[BufferedCriterion],
    step: int,
    *,
    max_active: int,
    min_separation: float,
    referenced: bool,
) -> dict[str, RetirementReason | None]:
    """Return by key which criteria are kept (None), and why the others are retired.

    Of the criteria that are active or were tested at this ``step``, the best ``max_active`` are kept. Frozen criteria,
    retired ones that were not tested, and proposed ones without a trial stay as they are. A separation under
    ``min_separation`` says nothing about a group. Where there is a trusted judge to agree with (``referenced``),
    agreement counts.
    """
    reasons: dict[str, RetirementReason | None] = {}
    eligible: list[tuple[float, int, str]] = []
    for place, entry in enumerate(entries):
        if entry.state == "frozen" or (entry.state != "active" and entry.tested_step != step):
            continue
        # separation, times 2 · agreement − 1 where there is a reference; nothing confirms what has no pairs to compare
        share = entry.agreeing / entry.pairs if entry.pairs else 0.5
        merit = (entry.separation or 0.0) * (2 * share - 1 if referenced else 1.0)
        reasons[entry.key] = "agreement" if merit <= 0 else "limit"
        if not entry.separation or entry.separation < min_separation:
            reasons[entry.key] = "separation"
        elif merit > 0:
            eligible.append((-merit, place, entry.key))
    return reasons | {key: None for *_, key in sorted(eligible)[:max_active]}


def agreement(rewards: Floats, pairs: Ints) -> float | None:
    """Return the share of pairs [P, 2] that rewards [N] order as people do; None where too many have no reward."""
    units = ordered(differences(rewards, pairs))
    known = ~np.isnan(units)
    return float(units[known].mean()) if len(units) and known.mean() >= MIN_ORDERED else None


def held_out_result(pairs: Ints, clusters: Ints, start: Floats, best: Floats) -> HeldOutResult:
    """Return how much better rewards [N] of the best draft order held-out pairs [P, 2] than those of the start.

    ``clusters`` [N] are what is independent: the prompts, or the completions where all have one prompt.

    Raises:
        InvalidError: No pair has both rewards.
    """
    before, after = (ordered(differences(rewards, pairs)) for rewards in (start, best))
    known, of_pair = ~(np.isnan(before) | np.isnan(after)), clusters[pairs[:, 0]]
    if not known.any():
        raise InvalidError("no held-out pair has rewards of both rubrics", hint="see the failures of its jobs")
    (difference,) = mean_estimates((after - before)[known, None], of_pair[known])
    return HeldOutResult(
        prompts=len(np.unique(of_pair)),
        units=int(known.sum()),
        left_out=int((~known).sum()),
        start=float(before[known].mean()),
        best=float(after[known].mean()),
        difference=difference,
        gain=difference.low is not None and difference.low > 0,
    )
