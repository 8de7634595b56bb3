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
from rubricsvc.formats.fields import ForeignModel, Text, build
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.record import Record

RUBRIC = Rubric(criteria=(Criterion(key="follows", text="Does exactly what the instruction asks."),))


class LlmBar(ForeignModel):
    """A line of LLMBar."""

    instruction: Text = Field(alias="input")
    first: str = Field(alias="output_1")
    second: str = Field(alias="output_2")
    label: Literal[1, 2]
    bias: str = ""


class EvalBias(ForeignModel):
    """A line of EvalBiasBench. ``bias`` is the bias that it tests; it becomes the prompt's tag."""

    instruction: Text
    first: str = Field(alias="response1")
    second: str = Field(alias="response2")
    label: Literal[1, 2]
    bias: str


def _read(name: str, model: type[LlmBar] | type[EvalBias], file: InputFile) -> Iterator[Record]:
    for number, (data, location) in enumerate(file.records(), start=1):
        pair = build(model, data, location, file.errors)
        if pair is None:
            continue
        prompt, id_ = Prompt.of(pair.instruction, tags=(pair.bias,) if pair.bias else ()), f"{name}-{number}"
        for number_in_pair, text in ((1, pair.first), (2, pair.second)):
            label = Label(criterion="follows", annotator="person 1", value=float(pair.label == number_in_pair))
            yield Record(prompt, RUBRIC, (Completion(text=text),), (label,), id_, rubric_name(id_), location)


def llmbar(file: InputFile) -> Iterator[Record]:
    """Yield two records for each valid pair; errors are added to ``file.errors``."""
    return _read("llmbar", LlmBar, file)


def evalbiasbench(file: InputFile) -> Iterator[Record]:
    """Yield two records for each valid pair, as `llmbar` does."""
    return _read("evalbiasbench", EvalBias, file)
