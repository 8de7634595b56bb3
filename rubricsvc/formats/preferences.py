"""Pairs of completions with a preference: LLMBar (arXiv 2310.07641) and EvalBiasBench (arXiv 2407.06551).

A pair becomes two records of one prompt under one criterion; the better completion is labelled 1, the other one 0. The
labels are relative: 0 means worse than the other, not bad.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.formats.entry import Entry, ForeignModel, Text
from rubricsvc.formats.record import Record

RUBRIC = Rubric(criteria=(Criterion(key="follows", text="Does exactly what the instruction asks."),))


class _LlmBar(ForeignModel):
    instruction: Text = Field(alias="input")
    first: str = Field(alias="output_1")
    second: str = Field(alias="output_2")
    label: Literal[1, 2]
    bias: str = ""


class _EvalBias(ForeignModel):
    instruction: Text
    first: str = Field(alias="response1")
    second: str = Field(alias="response2")
    label: Literal[1, 2]
    bias: str


def llmbar(entry: Entry) -> Iterator[Record]:
    """Yield two records for a pair."""
    return _records(entry, entry.build(_LlmBar, entry.data), f"llmbar-{entry.number}")


def evalbiasbench(entry: Entry) -> Iterator[Record]:
    """Yield two records for a pair. The bias that it tests becomes the prompt's tag."""
    return _records(entry, entry.build(_EvalBias, entry.data), f"evalbiasbench-{entry.number}")


def _records(entry: Entry, pair: _LlmBar | _EvalBias, name: str) -> Iterator[Record]:
    prompt = Prompt.of(pair.instruction, tags=(pair.bias,) if pair.bias else ())
    for number, text in ((1, pair.first), (2, pair.second)):
        label = Label(criterion="follows", annotator="person 1", value=float(pair.label == number))
        yield Record(prompt, RUBRIC, (Completion(text=text),), (label,), name, name, entry.location)
