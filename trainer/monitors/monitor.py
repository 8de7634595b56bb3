"""What a monitor reads, and how it splits texts into words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")
"""A word, or one character of a script that is written without spaces (kana and Han)."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A completion of a step: its prompt's text and ``group``, its text, reward and verdicts, and the rubric.

    ``sources`` are the ids of the documents that it was given or opened; None where neither is possible.
    """

    prompt: str
    group: int
    text: str
    reward: float | None
    verdicts: Sequence[Verdict]
    rubric: Rubric
    sources: frozenset[str] | None = None


Monitor = Callable[[Sequence[Observed]], Mapping[str, float | None]]
"""Returns metrics of a step's completions by name, None where there is nothing to measure."""
Measure = Callable[[str, str], float]
"""Returns a property of one completion, given its prompt and its text."""


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation."""
    return _WORD.findall(text.casefold())


def runs_of(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """Return all runs of n words, in order."""
    return list(zip(*(words[at:] for at in range(n)), strict=False))


def groups_of(observed: Sequence[Observed]) -> list[list[Observed]]:
    """Return the completions of each prompt, which are adjacent."""
    return [list(group) for _, group in groupby(observed, key=lambda one: one.group)]


def mean_of(name: str, measure: Measure) -> Monitor:
    """Return the monitor of the mean of a measure over a step's completions."""
    return lambda observed: {name: fmean(measure(one.prompt, one.text) for one in observed)}
