"""What labels or rollouts show of criteria and of drafts, and which are kept (docs/evolving.md). Needs ``judging``.

Separation is the standard deviation of a criterion's values within a group of completions: what GRPO can learn from.
Agreement is the share of pairs of completions that a criterion, or the rewards of a rubric, order as people or a
trusted judge do; ties count half.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import fmean, pstdev

import numpy as np

from rubricsvc.core.evolution import BufferedCriterion, HeldOutResult, RetirementReason
from rubricsvc.errors import InvalidError
from rubricsvc.stats.criteria import mean_estimates
from rubricsvc.stats.intervals import Floats, Ints
from rubricsvc.stats.ranking import concordance

Values = Sequence[float | None]
"""A criterion's value for each completion of a group; None where it was not judged."""

MIN_SHARE = 0.5
"""Share of a group that must be judged for a trial to count."""
MIN_ORDERED = 0.9
"""Share of the pairs that a draft must have rewards for."""
_TIE = 1e-12


def measured(
    entry: BufferedCriterion,
    step: int,
    values: Values,
    *,
    trusted: Values = (),
    labels: Sequence[tuple[float, float]] = (),
) -> BufferedCriterion | None:
    """Return the entry after a trial at ``step``; None if too few completions were judged.

    Args:
        entry: The criterion.
        step: Step of the evolution, from 0.
        values: Its values in the group.
        trusted: The trusted judge's values on the same completions; empty without one.
        labels: Values of labelled completions, each with people's overall score.
    """
    known = [value for value in values if value is not None]
    if len(known) < max(2, MIN_SHARE * len(values)):
        return None
    sign = -1.0 if entry.criterion.weight < 0 else 1.0
    compared = [(a, b) for a, b in zip(values, trusted, strict=bool(trusted)) if a is not None and b is not None]
    agreeing, pairs = entry.agreeing, entry.pairs
    for group in (compared, [(sign * value, score) for value, score in labels]):
        net_concordant, _, different = concordance(group)
        agreeing, pairs = agreeing + (different + net_concordant) / 2, pairs + different
    found = {"separation": pstdev(known), "mean": fmean(known), "agreeing": agreeing, "pairs": pairs}
    return entry.model_copy(update={"trials": entry.trials + 1, "tested_step": step, **found})


def selected(
    entries: Sequence[BufferedCriterion],
    tested: Collection[str],
    *,
    max_active: int,
    min_separation: float,
    referenced: bool,
) -> dict[str, RetirementReason | None]:
    """Return by key which criteria are kept (None), and why the others are retired.

    Of the criteria that are active or were ``tested`` in this round, by key, the best ``max_active`` are kept. Frozen
    criteria, retired ones that were not tested, and proposed ones without a trial stay as they are. A separation under
    ``min_separation`` says nothing about a group. Where there is a trusted judge, or labels, to agree with
    (``referenced``), agreement counts.
    """
    reasons: dict[str, RetirementReason | None] = {}
    eligible: list[tuple[float, int, str]] = []
    for place, entry in enumerate(entries):
        if entry.state == "frozen" or (entry.state != "active" and entry.key not in tested):
            continue
        # separation, times 2 · agreement − 1 where there is a reference; nothing confirms what has no pairs to compare
        share = 0.5 if entry.agreement is None else entry.agreement
        merit = (entry.separation or 0.0) * (2 * share - 1 if referenced else 1.0)
        reasons[entry.key] = "agreement" if merit <= 0 else "limit"
        if not entry.separation or entry.separation < min_separation:
            reasons[entry.key] = "separation"
        elif merit > 0:
            eligible.append((-merit, place, entry.key))
    return reasons | {key: None for *_, key in sorted(eligible)[:max_active]}


def due(entries: Sequence[BufferedCriterion], step: int, *, retest_every: int, max_retests: int) -> list[str]:
    """Return the keys of what a round at ``step`` measures: proposed and active criteria, and retired ones to re-test.

    Of the retired ones whose newest trial is ``retest_every`` steps ago or more, those of the oldest trial come first.
    """
    retired = [one for one in entries if one.state == "retired" and step - (one.tested_step or 0) >= retest_every]
    retests = {one.key for one in sorted(retired, key=lambda one: one.tested_step or 0)[:max_retests]}
    return [one.key for one in entries if one.state in ("proposed", "active") or one.key in retests]


def ordered(rewards: Floats, pairs: Ints) -> Floats:
    """Return 1 for each pair (preferred, other) [P, 2] that rewards [N] order so, 0.5 tied, else 0; NaN if unknown."""
    margins = rewards[pairs[:, 0]] - rewards[pairs[:, 1]]
    return np.where(np.isnan(margins), np.nan, (margins > _TIE) + 0.5 * (np.abs(margins) <= _TIE))


def agreement(rewards: Floats, pairs: Ints) -> float | None:
    """Return the share of pairs [P, 2] that rewards [N] order as people do; None where too many have no reward."""
    units = ordered(rewards, pairs)
    known = ~np.isnan(units)
    return float(units[known].mean()) if len(units) and known.mean() >= MIN_ORDERED else None


def held_out_result(pairs: Ints, clusters: Ints, start: Floats, best: Floats) -> HeldOutResult:
    """Return how much better rewards [N] of the best draft order held-out pairs [P, 2] than those of the start.

    ``clusters`` [N] are what is independent: the prompts, or the completions where all have one prompt.

    Raises:
        InvalidError: No pair has both rewards.
    """
    before, after = ordered(start, pairs), ordered(best, pairs)
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
