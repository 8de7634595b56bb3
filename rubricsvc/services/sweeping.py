"""Compare the runs of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rubricsvc.core.run_report import RunReport
from rubricsvc.core.sweep import SweepRow, SweepTable
from rubricsvc.services.run_comparing import paired_values, result_of
from rubricsvc.stats.seeds import over_prompts_and_seeds

Runs = Mapping[int, RunReport]
"""The runs of a variant, by seed."""


class _Pair(NamedTuple):
    """The values of two variants on a prompt, in their runs with one seed."""

    prompt: str
    seed: int
    first: float
    second: float


def compare_variants(variants: Mapping[str, Runs]) -> SweepTable:
    """Return the table of a sweep: each variant beside the first, paired by prompt and seed.

    A variant without runs has no values, and no variant is the best while runs are missing.
    """
    first: Runs = next(iter(variants.values()), {})
    lines = [run.evaluations[-1] for runs in variants.values() for run in runs.values() if run.evaluations]
    scores = list(lines[0]["scores"]) if lines else []
    gold = lines[0]["gold"] if lines else ""
    rows = [
        _row(variant, runs, first, score, gold=score == gold) for score in scores for variant, runs in variants.items()
    ]
    return SweepTable(rows=tuple(rows), best=_best(variants, rows, gold))


def _row(variant: str, runs: Runs, first: Runs, score: str, *, gold: bool) -> SweepRow:
    pairs, reason = _pairs(first, runs, score)
    own = pairs or _pairs(runs, runs, score)[0]  # the first may have no runs
    prompts, seeds = [one.prompt for one in own], [one.seed for one in own]
    mean = over_prompts_and_seeds([one.second for one in own], prompts, seeds)
    row = SweepRow(variant=variant, score=score, gold=gold, seeds=len(set(seeds)), prompts=len(set(prompts)), mean=mean)
    if runs is first:
        return row
    if not pairs:
        return row.model_copy(update={"result": "not_comparable", "reason": reason})
    difference = over_prompts_and_seeds([one.second - one.first for one in pairs], prompts, seeds)
    return row.model_copy(update={"difference": difference, "result": result_of(difference)})


def _pairs(first: Runs, second: Runs, score: str) -> tuple[list[_Pair], str]:
    """Return the paired values of two variants, or why there are none."""
    found: list[_Pair] = []
    reasons: list[str] = []
    for seed in first.keys() & second.keys():
        values, reason = paired_values(first[seed], second[seed], score)
        found += [_Pair(prompt, seed, one, two) for prompt, one, two in values]
        reasons += [reason] * bool(reason)
    return found, next(iter(reasons), "no run of both has the same seed")


def _best(variants: Mapping[str, Runs], rows: list[SweepRow], gold: str) -> str | None:
    """Return the variant that is higher than every other; None where an interval holds 0, or a run is missing."""
    if len({frozenset(runs) for runs in variants.values()}) > 1:
        return None
    means = {row.variant: row.mean.value for row in rows if row.score == gold and row.mean.value is not None}
    if len(means) < len(variants) or len(means) < 2:
        return None
    best = max(means, key=lambda variant: means[variant])
    for other in means:
        if other != best:
            pairs, _ = _pairs(variants[other], variants[best], gold)
            gains = [one.second - one.first for one in pairs]
            difference = over_prompts_and_seeds(gains, [one.prompt for one in pairs], [one.seed for one in pairs])
            if result_of(difference) != "higher":
                return None
    return best
