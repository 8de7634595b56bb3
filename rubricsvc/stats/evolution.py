"""What a trial shows of buffered criteria, and which of them are active (docs/evolving.md).

Separation is the standard deviation of a criterion's values within a group of completions: what GRPO can learn from.
Agreement is the share of pairs of completions that the criterion orders as a trusted judge or people do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import fmean, pstdev

from rubricsvc.core.evolution import (
    ACTIVE,
    BUFFER_RETIRED,
    FROZEN,
    PROPOSED,
    BufferedCriterion,
    RetirementReason,
)
from rubricsvc.stats.ranking import concordance

Values = Sequence[float | None]
"""A criterion's value for each completion of a group; None where it was not judged."""

MIN_SHARE = 0.5
"""Share of a group that must be judged for a trial to count."""


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
        step: Step of the run, from 0.
        values: Its values in the group.
        trusted: The trusted judge's values on the same completions; empty without one.
        labels: Values of other completions, each with people's overall score.
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
    return entry.model_copy(
        update={
            "trials": entry.trials + 1,
            "tested_step": step,
            "separation": pstdev(known),
            "mean": fmean(known),
            "agreeing": agreeing,
            "pairs": pairs,
        }
    )


def selected(
    entries: Sequence[BufferedCriterion],
    tested: Collection[str],
    *,
    max_active: int,
    min_separation: float,
    referenced: bool,
) -> list[BufferedCriterion]:
    """Return the entries with their new states.

    Of the criteria that are active or were ``tested`` in this round, the best are active, up to the limit; the other
    ones are retired. Frozen criteria, retired ones that were not tested, and proposed ones without a trial stay as
    they are.

    Args:
        entries: The buffer of a prompt.
        tested: Keys of the criteria that were measured in this round.
        max_active: Limit of active criteria.
        min_separation: Separation below which a criterion says nothing about its group.
        referenced: Whether there is a trusted judge, or labels, to agree with.
    """
    reasons: dict[str, RetirementReason] = {}
    eligible: list[tuple[float, int, str]] = []
    for place, entry in enumerate(entries):
        if entry.state == FROZEN or (entry.state != ACTIVE and entry.key not in tested):
            continue
        # separation, times 2 · agreement − 1 where there is a reference; nothing confirms what has no pairs to compare
        agreement = 0.5 if entry.agreement is None else entry.agreement
        merit = (entry.separation or 0.0) * (2 * agreement - 1 if referenced else 1.0)
        if not entry.separation or entry.separation < min_separation:
            reasons[entry.key] = "separation"
        elif merit <= 0:
            reasons[entry.key] = "agreement"
        else:
            eligible.append((-merit, place, entry.key))
            reasons[entry.key] = "limit"
    best = {key for *_, key in sorted(eligible)[:max_active]}
    moved = []
    for entry in entries:
        fields: dict[str, object] = {}
        if entry.key in best:
            again = entry.state == BUFFER_RETIRED
            fields = {"state": ACTIVE, "reason": None, "reactivations": entry.reactivations + again}
        elif entry.key in reasons:
            fields = {"state": BUFFER_RETIRED, "reason": reasons[entry.key]}
        moved.append(entry.model_copy(update=fields))
    return moved


def due(entries: Sequence[BufferedCriterion], step: int, *, retest_every: int, max_retests: int) -> list[str]:
    """Return the keys of what a round at ``step`` measures: proposed and active criteria, and retired ones to re-test.

    Of the retired ones whose newest trial is ``retest_every`` steps ago or more, those of the oldest trial come first.
    """
    retired = [
        (entry.tested_step or 0, place, entry.key)
        for place, entry in enumerate(entries)
        if entry.state == BUFFER_RETIRED and step - (entry.tested_step or 0) >= retest_every
    ]
    retests = {key for *_, key in sorted(retired)[:max_retests]}
    return [entry.key for entry in entries if entry.state in (PROPOSED, ACTIVE) or entry.key in retests]
