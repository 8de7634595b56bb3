"""Warnings about the steps of a training run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rubricsvc.cli.output import counted, echo
from rubricsvc.stats.divergence import first_divergence
from rubricsvc.stats.monitor_alarms import monitor_alarms
from rubricsvc.stats.tool_alarms import tool_alarms

if TYPE_CHECKING:
    from trainer.history import History, Metrics

VETOED, NO_SIGNAL = "all completions vetoed", "no group with a signal"
FIXES = {
    VETOED: "reword the required criteria so that some completions meet them, or start from a better policy",
    NO_SIGNAL: "raise sampling.group_size or sampling.temperature, or use criteria that tell completions apart",
}


def no_signal(step: Metrics, algorithm: str) -> str | None:
    """Return why the rewards of a step taught the policy nothing; None if they did. Only GRPO needs them to differ."""
    if step.get("vetoed_fraction") == 1.0:
        return VETOED
    return NO_SIGNAL if algorithm == "grpo" and step["frac_reward_zero_std"] == 1.0 else None


def print_warnings(history: History, algorithm: str) -> None:
    """Print why steps taught the policy nothing, and the alarms of tools, monitors and gold."""
    for reason, count in Counter(filter(None, (no_signal(step, algorithm) for step in history.steps))).items():
        echo(f"warning: {reason} in {counted(count, 'step')} of {len(history.steps)}; {FIXES[reason]}")
    for alarm in (*tool_alarms(history.steps), *monitor_alarms(history.steps)):
        echo(f"warning: {alarm.text}")
    if (divergence := first_divergence(history.evaluations)) is not None:
        echo(f"warning: {divergence.text}")
