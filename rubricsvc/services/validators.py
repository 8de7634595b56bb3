"""Checks of values that only the workers can make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Rubric
from rubricsvc.lint import EmptyValue
from rubricsvc.services.runs import Sign


def _accept(_: object) -> None:
    pass


@dataclass(frozen=True)
class Validators:
    """Checks of values that only the workers can make: a rubric's checks exist, a judge's engine and template exist.

    Services do not import the workers, so the process that starts them passes their functions. ``rubric`` and
    ``judge`` raise InvalidError; ``empty_value`` runs a check on an empty completion, and ``signs`` are what
    the examples of a run's alarms show.
    """

    rubric: Callable[[Rubric], None] = _accept
    judge: Callable[[Judge], None] = _accept
    empty_value: EmptyValue | None = None
    signs: Callable[[], Mapping[str, Sign]] = dict
