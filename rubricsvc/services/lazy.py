"""What services call of the workers and the trainer, which they do not import: each is imported when it is called."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def _imported(module: str, name: str) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        return getattr(import_module(module), name)(*given)

    return call


check_rubric = _imported("workers.checks", "validate")
check_judge = _imported("workers.judges", "validate")
"""Both raise an InvalidError: a check, an engine or a template does not exist."""
value_of_empty = _imported("workers.checks", "value_of_empty")
complete_answered = _imported("workers.queue.drain", "complete_answered")
"""Scores what of a job needs no question."""
worker_for = _imported("workers.queue.app", "worker_for")
"""Runs a worker of this process for a job that no other can receive."""
reward_changes = _imported("workers.scoring.reward_changes", "reward_changes")
alarms = _imported("trainer.alarms", "alarms")
sign = _imported("trainer.monitors.measures", "sign")
"""How much of a sign a completion has, given its prompt's text; None where it does not have the sign at all."""
