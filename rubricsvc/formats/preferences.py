"""Pairs of answers, one of them the better one: LLMBar (arXiv 2310.07641) and EvalBiasBench (arXiv 2407.06551).

A pair becomes two records of one prompt under one criterion; the better answer is labelled 1, the other one 0. The
labels are relative: what is 0 is worse than its partner, and need not be bad.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.formats.documents import documents
from rubricsvc.formats.errors import Faults
from rubricsvc.formats.fields import Foreign, build
from rubricsvc.formats.native import usable_name
from rubricsvc.formats.record import Record
from rubricsvc.formats.source import Source

RUBRIC = Rubric(criteria=(Criterion(key="follows", text="Does exactly what the instruction asks."),))
Text = Annotated[str, Field(min_length=1)]


class LlmBar(Foreign):
    """A line of LLMBar."""

    instruction: Text = Field(alias="input")
    first: str = Field(alias="output_1")
    second: str = Field(alias="output_2")
    label: Literal[1, 2]
    bias: str = ""


class EvalBias(Foreign):
    """A line of EvalBiasBench. ``bias`` is what a judge may be led by; it becomes the prompt's tag."""

    instruction: Text
    first: str = Field(alias="response1")
    second: str = Field(alias="response2")
    label: Literal[1, 2]
    bias: str


def _read(name: str, model: type[LlmBar] | type[EvalBias], source: Source, faults: Faults) -> Iterator[Record]:
    for number, (data, place) in enumerate(documents(source, faults), start=1):
        pair = build(model, data, place, faults)
        if pair is None:
            continue
        prompt, id_ = Prompt.of(pair.instruction, tags=(pair.bias,) if pair.bias else ()), f"{name}-{number}"
        for place_of, text in ((1, pair.first), (2, pair.second)):
            label = Verdict.scored("follows", float(pair.label == place_of))
            answer = (Completion(text=text),)
            yield Record(prompt, RUBRIC, answer, (label,), id_, usable_name(id_), place)


def llmbar(source: Source, faults: Faults) -> Iterator[Record]:
    """Two records a pair; what is wrong goes to ``faults``.

    Raises:
        FormatError: the file cannot be read at all.
    """
    return _read("llmbar", LlmBar, source, faults)


def evalbiasbench(source: Source, faults: Faults) -> Iterator[Record]:
    """As `llmbar`."""
    return _read("evalbiasbench", EvalBias, source, faults)
