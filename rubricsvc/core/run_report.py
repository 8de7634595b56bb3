"""What the report of a training run is made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rubricsvc.core.passport import Passport
from rubricsvc.core.prompt import Message
from rubricsvc.core.verdict import Verdict


@dataclass(frozen=True)
class Sample:
    """A completion in the report. ``scores`` are by name: the training reward, and those of the evaluation.

    ``verdicts`` are those of the training reward, and ``evaluation_row`` is its row in the store, where it has one.
    ``messages`` is the trajectory of an episode in an environment; other completions have none.
    """

    prompt: str
    text: str
    where: str
    scores: Mapping[str, float | None]
    truncated: bool = False
    greedy: bool = False
    verdicts: tuple[Verdict, ...] = ()
    evaluation_row: int | None = None
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True)
class Transcript:
    """A held-out prompt with its trajectories in the first and the last evaluation, or in the only one."""

    prompt: str
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Alarm:
    """A reason to distrust a run: in ``step``, if it is of one, of whose rollouts those with ``sign`` are examples.

    A sign is that of a completion (`rubricsvc.cli.run_alarms.SIGNS`), or the name of what the examples have most of
    (`trainer.monitors.measures`). That of a monitor has its ``metric``.
    """

    text: str
    step: int | None = None
    sign: str | None = None
    metric: str | None = None
    examples: tuple[Sample, ...] = ()


@dataclass(frozen=True)
class RunReport:
    """A training run: configuration, metrics by step, evaluations and baselines, and completions.

    ``samples`` are those of the evaluations, by their names in ``columns``: for each prompt the completion of each.
    ``transcripts`` are in the order in which the gold score rose most.
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
    transcripts: Sequence[Transcript] = ()
    alarms: Sequence[Alarm] = ()
    passport: Passport | None = None
    passport_missing: str = ""
    status: str = ""


def transcripts_of(first: Mapping[str, Sample], last: Mapping[str, Sample], score: str, most: int) -> list[Transcript]:
    """Return the trajectories of prompts in two evaluations, by how much the score of these completions rose.

    Of more than ``most`` prompts they are the first and the last in this order, and those evenly between.

    Args:
        first: A completion of each prompt in the first evaluation.
        last: The same in the last evaluation, or in the only one.
        score: Score by whose change they are ordered; a prompt without it counts as unchanged.
        most: Number of transcripts.
    """

    def rise(prompt: str) -> float:
        before, after = (one[prompt].scores.get(score) for one in (first, last))
        return 0.0 if before is None or after is None else after - before

    with_trajectory = (prompt for prompt in last if prompt in first and last[prompt].messages)
    ranked = sorted(with_trajectory, key=rise, reverse=True)
    if (count := len(ranked)) > most:
        ranked = [ranked[round(n * (count - 1) / max(most - 1, 1))] for n in range(most)]
    return [Transcript(one, (first[one],) if first[one] is last[one] else (first[one], last[one])) for one in ranked]


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
