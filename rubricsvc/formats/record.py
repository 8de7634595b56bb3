"""What every format is read into."""

from __future__ import annotations

from dataclasses import dataclass, field

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.formats.errors import Place


@dataclass(frozen=True, slots=True)
class Record:
    """A prompt with its rubric, and what was answered to it.

    ``rubric`` is None in a file of mere prompts and completions; ``prompt`` is None where a rubric is for any prompt.
    ``labels`` are people's verdicts on the record's one completion; with several people, ``sample`` counts them, and
    ``detail`` is a person's name, where it is known. The key ``overall`` is a score of the whole completion.
    ``id`` is the prompt's id in the file it came from, ``name`` the rubric's name.
    ``place`` is where its rubric stands in the file.
    """

    prompt: Prompt | None
    rubric: Rubric | None
    completions: tuple[Completion, ...] = ()
    labels: tuple[Verdict, ...] = ()
    id: str | None = None
    name: str = ""
    place: Place | None = field(default=None, compare=False, repr=False)
