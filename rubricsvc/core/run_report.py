"""What the report of a training run is made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rubricsvc.core.passport import Passport
from rubricsvc.core.verdict import Verdict


@dataclass(frozen=True)
class Sample:
    """A completion in the report. ``scores`` are by name: the training reward, and those of the evaluation.

    ``verdicts`` are those of the training reward, and ``evaluation_row`` is its row in the store, where it has one.
    """

    prompt: str
    text: str
    where: str
    scores: Mapping[str, float | None]
    truncated: bool = False
    greedy: bool = False
    verdicts: tuple[Verdict, ...] = ()
    evaluation_row: int | None = None


@dataclass(frozen=True)
class RunReport:
    """A training run: configuration, metrics by step, evaluations and baselines, and completions.

    ``samples`` are those of the evaluations, by their names in ``columns``: for each prompt the completion of each.
    ``passport_missing`` says why there is no ``passport`` of the run's judge.
    """

    name: str
    config: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]
    evaluations: Sequence[Mapping[str, Any]] = ()
    baselines: Sequence[Mapping[str, Any]] = ()
    highest: Sequence[Sample] = ()
    widest: Sequence[Sample] = ()
    columns: Sequence[str] = ()
    samples: Mapping[str, Mapping[str, Sample]] = field(default_factory=dict)
    passport: Passport | None = None
    passport_missing: str = ""
    status: str = ""


def flat(config: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of a configuration by their paths; those without a value are left out."""
    for name, value in config.items():
        key = f"{path}.{name}" if path else name
        if isinstance(value, Sequence) and value and all(isinstance(one, Mapping) for one in value):
            value = {str(number): one for number, one in enumerate(value)}  # noqa: PLW2901
        if isinstance(value, Mapping):
            yield from flat(value, key)
        elif value not in (None, [], ()):
            yield key, value
