"""HealthBench (arXiv 2505.08775), and its meta-evaluation: JSONL as in openai/simple-evals.

One line of the benchmark is a conversation with physicians' criteria and their points (negative: a pitfall). One line
of the meta-evaluation is one criterion of one completion with the label of each physician.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from itertools import zip_longest
from typing import Annotated

from pydantic import Field

from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Message, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.formats.foreign import messages_of, plain_weight, prompt_in, rubric_in
from rubricsvc.formats.native import numbered_keys, rubric_name
from rubricsvc.formats.record import Entry, ForeignModel, Record, Row, Text

_CANARY = "canary:"


class _Item(ForeignModel):
    criterion: Text
    points: float
    tags: tuple[str, ...] = ()


class _Ideal(ForeignModel):
    ideal_completion: str | None = None
    ideal_completions_ref_completions: list[str] | None = None


class _Line(ForeignModel):
    prompt_id: Text
    prompt: Annotated[tuple[Message, ...], Field(min_length=1)]
    canary: str | None = None


class _Example(_Line):
    rubrics: Annotated[tuple[_Item, ...], Field(min_length=1)]
    example_tags: tuple[str, ...] = ()
    completion: str | None = None
    ideal_completions_data: _Ideal | None = None


class _MetaExample(_Line):
    rubric: Text
    completion: str
    completion_id: str | None = None
    category: str | None = None
    binary_labels: Annotated[list[bool], Field(min_length=1)]
    anonymized_physician_ids: tuple[str, ...] = ()


def read(entry: Entry) -> Iterator[Record]:
    """Yield the record of a line."""
    meta = isinstance(entry.data, dict) and "binary_labels" in entry.data
    yield _meta_example(entry) if meta else _example(entry)


def _example(entry: Entry) -> Record:
    line = entry.build(_Example, entry.data)
    completions = [Completion(text=line.completion)] if line.completion is not None else []
    if ideal := line.ideal_completions_data:
        if ideal.ideal_completion is not None:
            completions.append(Completion(text=ideal.ideal_completion, policy="physician"))
        references = ideal.ideal_completions_ref_completions or ()
        completions += (Completion(text=text, policy="reference") for text in references)
    name = rubric_name(f"healthbench-{line.prompt_id}")
    prompt, rubric = _prompt(line, line.example_tags), _rubric(line.rubrics)
    return Record(prompt, rubric, tuple(completions), (), line.prompt_id, name, entry.location)


def _meta_example(entry: Entry) -> Record:
    line = entry.build(_MetaExample, entry.data)
    rubric = _rubric((_Item(criterion=line.rubric, points=1.0),))
    key = rubric.criteria[0].key
    people = zip_longest(line.binary_labels, line.anonymized_physician_ids[: len(line.binary_labels)])
    labels = tuple(
        Label(criterion=key, annotator=person or f"person {number}", value=float(met))
        for number, (met, person) in enumerate(people, start=1)
    )
    prompt = _prompt(line, (line.category,) if line.category else ())
    completion = Completion(text=line.completion, id=line.completion_id)
    name = rubric_name(f"healthbench-meta-{line.prompt_id}-{key}")  # other prompts have the same criterion
    return Record(prompt, rubric, (completion,), labels, line.prompt_id, name, entry.location)


def _prompt(line: _Line, tags: tuple[str, ...]) -> Prompt:
    """Return the conversation. The benchmark's canary is kept as a tag."""
    return Prompt(messages=line.prompt, tags=(*tags, _CANARY + line.canary) if line.canary else tags)


def _rubric(items: tuple[_Item, ...]) -> Rubric:
    """Return the rubric. A key is made of axis and digest of the text, so that it is the same in every subset."""
    names = []
    for item in items:
        axis = next((tag.removeprefix("axis:") for tag in item.tags if tag.startswith("axis:")), "criterion")
        names.append(f"{axis}-{sha256(item.criterion.encode()).hexdigest()[:8]}")
    criteria = tuple(
        Criterion(key=key, text=item.criterion, weight=item.points, tags=item.tags)
        for key, item in zip(numbered_keys(names), items, strict=True)
    )
    return Rubric(criteria=criteria, formula="healthbench")


def dump(record: Record) -> Iterator[Row]:
    """Yield the line of a rubric."""
    rubric, prompt = rubric_in(record, "healthbench"), prompt_in(record, "healthbench")
    items = [
        {"criterion": one.text, "points": plain_weight(one.weight), "tags": list(one.tags)} for one in rubric.criteria
    ]
    canary = next((tag.removeprefix(_CANARY) for tag in prompt.tags if tag.startswith(_CANARY)), None)
    tags = [tag for tag in prompt.tags if not tag.startswith(_CANARY)]
    line: Row = {"prompt_id": record.id or record.name or "1", "prompt": messages_of(prompt), "rubrics": items}
    yield line | {"example_tags": tags} | ({"canary": canary} if canary else {})
