"""Warnings about the steps of a training run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubricsvc.cli.output import echo
from rubricsvc.stats.run_alarms import NO_SIGNAL, VETOED, alarms

if TYPE_CHECKING:
    from trainer.history import History, Metrics


def no_signal(step: Metrics, algorithm: str) -> str | None:
    """Return why the rewards of a step taught the policy nothing; None if they did. Only GRPO needs them to differ."""
    if step.get("vetoed_fraction") == 1.0:
        return VETOED
    return NO_SIGNAL if algorithm == "grpo" and step["frac_reward_zero_std"] == 1.0 else None


def print_warnings(history: History) -> None:
    """Print the alarms of a run."""
    for alarm in alarms(history.steps, history.evaluations):
        echo(f"warning: {alarm.text}")
