"""Pairs of completions with a preference: LLMBar (arXiv 2310.07641) and EvalBiasBench (arXiv 2407.06551).

A pair becomes two records of one prompt under one criterion; the better completion is labelled 1, the other one 0. The
labels are relative: 0 means worse than the other, not bad.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import AliasChoices, Field

from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.formats.record import Entry, ForeignModel, Record, Text

RUBRIC = Rubric(criteria=(Criterion(key="follows", text="Does exactly what the instruction asks."),))


class _Pair(ForeignModel):
    """A line of LLMBar, or one of EvalBiasBench, whose ``bias`` is the bias that it tests."""

    instruction: Text = Field(validation_alias=AliasChoices("instruction", "input"))
    first: str = Field(validation_alias=AliasChoices("response1", "output_1"))
    second: str = Field(validation_alias=AliasChoices("response2", "output_2"))
    label: Literal[1, 2]
    bias: str = ""


def llmbar(entry: Entry) -> Iterator[Record]:
    """Yield two records for a pair."""
    return _records(entry, f"llmbar-{entry.number}")


def evalbiasbench(entry: Entry) -> Iterator[Record]:
    """Yield two records for a pair. The bias becomes the prompt's tag."""
    return _records(entry, f"evalbiasbench-{entry.number}")


def _records(entry: Entry, name: str) -> Iterator[Record]:
    pair = entry.build(_Pair, entry.data)
    prompt = Prompt.of(pair.instruction, tags=(pair.bias,) if pair.bias else ())
    for number, text in ((1, pair.first), (2, pair.second)):
        label = Label(criterion="follows", annotator="person 1", value=float(pair.label == number))
        yield Record(prompt, RUBRIC, (Completion(text=text),), (label,), name, name, entry.location)
