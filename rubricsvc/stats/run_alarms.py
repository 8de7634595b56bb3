"""What in the metrics and evaluations of a training run is a reason to distrust its reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rubricsvc.schemas.runs import Alarm
from rubricsvc.stats.divergence import first_divergence
from rubricsvc.stats.monitor_alarms import monitor_alarms
from rubricsvc.stats.regressions import regression_alarm
from rubricsvc.stats.tool_alarms import tool_alarms

LARGE_KL = 0.2
"""Nats a token from the starting policy."""
UNSCORED = 0.05
"""Share of a step's completions without a reward."""
VETOED, NO_SIGNAL = "all completions vetoed", "no group with a signal"
"""Why a step taught the policy nothing."""
_MORE_SIGNAL = (
    "raise sampling.group_size or sampling.temperature, or use criteria that tell completions apart: equal rewards "
    "teach GRPO nothing"
)
_FEWER_VETOES = "reword the required criteria so that some completions meet them, or start from a better policy"


def alarms(steps: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]]) -> list[Alarm]:
    """Return the reasons, given the metrics of the steps and the evaluations of a run, by step."""
    shares = (
        ("frac_reward_zero_std", 1.0, f"{NO_SIGNAL}; {_MORE_SIGNAL}"),
        ("vetoed_fraction", 1.0, f"{VETOED}; {_FEWER_VETOES}"),
        ("unscored_fraction", UNSCORED, f"at least {UNSCORED:.0%} of the completions have no reward"),
        ("monitors/errors", 1, "a monitor raised an error, which is in the log of the run"),
        ("kl/start", LARGE_KL, f"the policy is {LARGE_KL:g} nats a token or more from its start: read its completions"),
    )
    found = []
    for name, limit, text in shares:
        hit = [step["step"] for step in steps if (step.get(name) or 0.0) >= limit]
        if hit:
            where = f"In {len(hit)} of {len(steps)} steps (the last is {hit[-1]})"
            found.append(Alarm(text=f"{where}: {text}.", step=hit[-1]))
    found += [*tool_alarms(steps), *monitor_alarms(steps, lines)]
    divergence = first_divergence(lines)
    of_gold = Alarm(text=divergence.text, step=divergence.step, sign="any") if divergence is not None else None
    return [*found, *(one for one in (of_gold, regression_alarm(lines)) if one is not None)]
