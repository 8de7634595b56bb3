"""What services call of the workers and the trainer, which they do not import: each is imported when it is called."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Lazy:
    """A function by its module and its name."""

    module: str
    name: str

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Import the function, and call it."""
        return getattr(import_module(self.module), self.name)(*given, **named)


check_rubric = Lazy("workers.checks", "validate")
check_judge = Lazy("workers.judges", "validate")
"""Both raise an InvalidError: a check, an engine or a template does not exist."""
value_of_empty = Lazy("workers.checks", "value_of_empty")
complete_answered = Lazy("workers.queue.drain", "complete_answered")
"""Scores what of a job needs no question."""
worker_for = Lazy("workers.queue.app", "worker_for")
"""Runs a worker of this process for a job that no other can receive."""
reward_changes = Lazy("workers.scoring.reward_changes", "reward_changes")
alarms = Lazy("trainer.alarms", "alarms")
sign = Lazy("trainer.monitors.measures", "sign")
"""How much of a sign a completion has, given its prompt's text; None where it does not have the sign at all."""
