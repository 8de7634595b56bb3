"""What in the metrics and evaluations of a training run is a reason to distrust its reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.run_evaluation import REWARD
from rubricsvc.core.run_report import Alarm
from rubricsvc.stats.policy_scores import paired_difference
from rubricsvc.stats.tool_alarms import tool_alarms

LARGE_KL = 0.2
"""Nats a token from the starting policy."""
UNSCORED = 0.05
"""Share of a step's completions without a reward."""


def alarms(steps: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]]) -> list[Alarm]:
    """Return the reasons, given the metrics of the steps and the evaluations of a run, by step."""
    shares = (
        ("frac_reward_zero_std", 1.0, "no group of completions had rewards that differ: these steps taught nothing"),
        ("vetoed_fraction", 1.0, "every completion failed a required criterion"),
        ("unscored_fraction", UNSCORED, f"at least {UNSCORED:.0%} of the completions have no reward"),
        ("kl/start", LARGE_KL, f"the policy is {LARGE_KL:g} nats a token or more from its start: read its completions"),
    )
    found = []
    for name, limit, text in shares:
        hit = [step["step"] for step in steps if (step.get(name) or 0.0) >= limit]
        if hit:
            found.append(Alarm(f"In {len(hit)} of {len(steps)} steps (the last is {hit[-1]}) {text}.", hit[-1]))
    found += tool_alarms(steps)
    gap = gap_growth(lines)
    if gap is not None and gap.value is not None and gap.value > 0 and (gap.low is None or gap.low > 0):
        interval = "too few prompts for an interval" if gap.low is None else f"95 %: {gap.low:.3f} to {gap.high:.3f}"
        text = f"The training reward rose by {gap.value:.3f} more than the gold score ({interval}): "
        found.append(Alarm(f"{text}the policy may please the judge without being better."))
    return found


def gap_growth(lines: Sequence[Mapping[str, Any]]) -> Estimate | None:
    """Return by how much the training reward rose more than the gold score, from the first evaluation to the last.

    It is paired by prompt. None with fewer than two evaluations, if one of the two lacks a score (those that other
    trainers record may), or if the gold score is the training reward.
    """
    if len(lines) < 2 or (gold := lines[-1]["gold"]) == REWARD:
        return None
    if not all({REWARD, gold} <= line["values"].keys() for line in (lines[0], lines[-1])):
        return None
    first, last = (_gaps(line, gold) for line in (lines[0], lines[-1]))
    return paired_difference(last, first) if len(first) == len(last) else None


def _gaps(line: Mapping[str, Any], gold: str) -> list[float | None]:
    pairs = zip(line["values"][REWARD]["mean"], line["values"][gold]["mean"], strict=True)
    return [None if proxy is None or gold is None else proxy - gold for proxy, gold in pairs]
