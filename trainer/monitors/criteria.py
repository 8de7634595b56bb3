"""Criteria: which of them pass, tell completions apart, and make up the reward; verdicts that abstain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import fsum
from statistics import fmean

from rubricsvc.core.reward import reward_or_null
from trainer.monitors.monitor import Observed, groups_of

SATURATED = 0.05
"""Range of a criterion's values within a prompt under which it does not distinguish completions."""
PASSED = 0.5
"""Value from which a criterion passes."""


def saturation(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return the share of criteria, counted by prompt, whose values hardly differ between its completions."""
    flat = []
    for group in groups_of(observed):
        values = defaultdict[str, list[float]](list)
        for verdict in (verdict for one in group for verdict in one.verdicts):
            if verdict.value is not None:
                values[verdict.criterion].append(verdict.value)
        flat += [max(each) - min(each) < SATURATED for each in values.values() if len(each) > 1]
    return {"saturated_criteria": fmean(flat) if flat else None}


def abstentions(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return the shares of verdicts that abstain and that failed."""
    outcomes = [verdict.outcome for one in observed for verdict in one.verdicts]
    return {
        f"{outcome}_verdicts": outcomes.count(outcome) / len(outcomes) if outcomes else None
        for outcome in ("abstained", "failed")
    }


def largest_share(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return the largest share of the reward that one criterion makes up, as mean over prompts.

    Prompts whose reward has one criterion are left out: None without others. Criteria of two rubrics are not added up.
    """
    shares = [each for group in groups_of(observed) if len(each := reward_shares(group)) > 1]
    return {"largest_reward_share": fmean(max(each.values()) for each in shares) if shares else None}


def reward_shares(observed: Sequence[Observed]) -> dict[str, float]:
    """Return each criterion's share of the sum of absolute contributions to the rewards, by key."""
    sums = defaultdict[str, float](float)
    for one in observed:
        for key, value in reward_or_null(one.rubric, one.verdicts).contributions.items():
            sums[key] += abs(value)
    total = fsum(sums.values())
    return {key: value / total for key, value in sums.items()} if total else {}


def by_criterion(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return the pass rate of each criterion, and its share of the reward; those with the same key are one."""
    passed = defaultdict[str, list[bool]](list)
    for verdict in (verdict for one in observed for verdict in one.verdicts):
        if verdict.value is not None:
            passed[verdict.criterion].append(verdict.value >= PASSED)
    rates = {f"pass_rate/{key}": fmean(each) for key, each in sorted(passed.items())}
    return rates | {f"reward_share/{key}": share for key, share in sorted(reward_shares(observed).items())}
