"""What services call of the workers and the trainer, which they do not import: each is imported when it is called."""

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any


def _lazy(name: str) -> Callable[..., Any]:
    """Return a function that imports the one of this name when it is called."""
    return lambda *given, **named: resolve_name(name)(*given, **named)  # noqa: PLW0108 - not imported before


check_rubric = _lazy("workers.checks:validate")
check_judge = _lazy("workers.judges:validate")
"""Both raise an InvalidError: a check, an engine or a template does not exist."""
value_of_empty = _lazy("workers.checks:value_of_empty")
complete_answered = _lazy("workers.queue.drain:complete_answered")
"""Scores what of a job needs no question."""
worker_for = _lazy("workers.queue.app:worker_for")
"""Runs a worker of this process for a job that no other can receive."""
reward_changes = _lazy("workers.scoring.reward_changes:reward_changes")
alarms = _lazy("trainer.alarms:alarms")
sign = _lazy("trainer.monitors.measures:sign")
"""How much of a sign a completion has, given its prompt's text; None where it does not have the sign at all."""
