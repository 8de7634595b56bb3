"""What services call of the workers and the trainer, which they do not import: each is imported when it is called."""

from functools import partial
from importlib import import_module
from typing import Any


def _call(module: str, name: str, *given: Any) -> Any:
    return getattr(import_module(module), name)(*given)


check_rubric = partial(_call, "workers.checks", "validate")
check_judge = partial(_call, "workers.judges", "validate")
"""Both raise an InvalidError: a check, an engine or a template does not exist."""
value_of_empty = partial(_call, "workers.checks", "value_of_empty")
complete_answered = partial(_call, "workers.queue.drain", "complete_answered")
"""Scores what of a job needs no question."""
worker_for = partial(_call, "workers.queue.app", "worker_for")
"""Runs a worker of this process for a job that no other can receive."""
reward_changes = partial(_call, "workers.scoring.reward_changes", "reward_changes")
alarms = partial(_call, "trainer.alarms", "alarms")
sign = partial(_call, "trainer.monitors.measures", "sign")
"""How much of a sign a completion has, given its prompt's text; None where it does not have the sign at all."""
