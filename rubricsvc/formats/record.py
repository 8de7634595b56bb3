"""The record that every format is read into."""

from __future__ import annotations

from collections.abc import Iterable
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
    location: Location | None = field(default=None, compare=False, repr=False)


def annotators(names: Iterable[str | None]) -> list[str]:
    """Return a name for each person: ``person 1``, ``person 2``, … for those without one or with a taken one."""
    unique: list[str] = []
    for number, name in enumerate(names, start=1):
        own = name.strip() if name else ""
        unique.append(own if own and own not in unique else f"{own or 'person'} {number}")
    return unique
