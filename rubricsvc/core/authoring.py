"""What a rubric is generated from: read from the database in the transaction that leases a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rubricsvc.core.generation import Specification
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric


@dataclass(frozen=True)
class Contrast:
    """Completions of one prompt of different quality, the best and the worst first."""

    better: tuple[Completion, ...]
    worse: tuple[Completion, ...]


@dataclass(frozen=True)
class Trajectory:
    """An agent's trajectory, with the mean of its overall labels or its reward, where there are any."""

    completion: Completion
    score: float | None = None


@dataclass(frozen=True)
class ParentRubric:
    """A stored rubric of the prompt, with its name@version."""

    ref: str
    rubric: Rubric


@dataclass(frozen=True)
class AuthoringTask:
    """What a rubric is written for, and what it may be written from and tried on.

    Attributes:
        prompt: The prompt.
        references: Reference answers: the prompt's own, and completions of the policy that the settings name.
        own: A completion of the prompt.
        other: A reference or completion of another prompt.
        labelled: Completions of the prompt with the mean of their overall labels.
        contrast: For the method contrastive; None where no completion is better than another.
        trajectories: For the method traces.
        parents: For the method merge: the rubrics, oldest first.
        specification: For the method principles, with its text.
        collections_dir: Folder of the collections of documents on this machine, for the method grounded.
    """

    prompt: Prompt
    references: tuple[str, ...] = ()
    own: Completion | None = None
    other: str | None = None
    labelled: Sequence[tuple[Completion, float]] = ()
    contrast: Contrast | None = None
    trajectories: Sequence[Trajectory] = ()
    parents: Sequence[ParentRubric] = ()
    specification: Specification | None = None
    collections_dir: Path | None = None
