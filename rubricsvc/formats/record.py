"""The record that every format is read into."""

from __future__ import annotations

from dataclasses import dataclass, field

from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.formats.errors import Location


@dataclass(frozen=True, slots=True)
class Record:
    """A prompt with its rubric, completions and labels.

    ``prompt`` is None where the rubric is for any prompt; ``rubric`` is None in a file of prompts and completions.
    ``labels`` are of the record's one completion. ``id`` is the id of the prompt in the file, ``name`` the name of the
    rubric, and ``location`` where the rubric is in the file.
    """

    prompt: Prompt | None
    rubric: Rubric | None
    completions: tuple[Completion, ...] = ()
    labels: tuple[Label, ...] = ()
    id: str | None = None
    name: str = ""
    location: Location = field(default=Location(""), compare=False, repr=False)
