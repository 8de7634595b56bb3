"""HealthBench (arXiv 2505.08775), and its meta-evaluation: JSONL as in openai/simple-evals.

One line of the benchmark is a conversation with physicians' criteria and their points (negative: a fault). One line of
the meta-evaluation is one criterion of one completion with what each physician said of it: its labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from typing import Annotated, Any

from pydantic import Field

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.formats.documents import parsed
from rubricsvc.formats.errors import Faults, Place, Renamed
from rubricsvc.formats.fields import Foreign, build
from rubricsvc.formats.native import check_formula, usable_name
from rubricsvc.formats.record import Record
from rubricsvc.formats.source import Source

Text = Annotated[str, Field(min_length=1)]


class _Message(Foreign):
    role: str
    content: str


class _Item(Foreign):
    criterion: Text
    points: float
    tags: tuple[str, ...] = ()


class _Ideal(Foreign):
    ideal_completion: str | None = None
    ideal_completions_ref_completions: list[str] | None = None


class _Line(Foreign):
    prompt_id: Text
    prompt: Annotated[list[_Message], Field(min_length=1)]
    canary: str | None = None


class _Example(_Line):
    rubrics: Annotated[list[_Item], Field(min_length=1)]
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


def read(source: Source, faults: Faults) -> Iterator[Record]:
    """One record a line; what is wrong goes to ``faults``.

    Raises:
        FormatError: the file cannot be read at all.
    """
    return parsed(source, faults, _parse)


def _parse(data: Any, place: Place, faults: Faults) -> Record | None:
    meta = isinstance(data, dict) and "binary_labels" in data
    return _labelled(data, place, faults) if meta else _example(data, place, faults)


def _example(data: Any, place: Place, faults: Faults) -> Record | None:
    before = faults.count
    line = build(_Example, data, place, faults)
    if line is None:
        return None
    prompt = _prompt(line, line.example_tags, place, faults)
    rubric = _rubric([item.model_dump() for item in line.rubrics], "rubrics", place, faults)
    if prompt is None or rubric is None or faults.count > before:
        return None
    name = usable_name(f"healthbench-{line.prompt_id}")
    return Record(prompt, rubric, tuple(_completions(line)), id=line.prompt_id, name=name, place=place)


def _completions(line: _Example) -> Iterator[Completion]:
    if line.completion is not None:
        yield Completion(text=line.completion)
    if ideal := line.ideal_completions_data:
        if ideal.ideal_completion is not None:
            yield Completion(text=ideal.ideal_completion, policy="physician")
        for text in ideal.ideal_completions_ref_completions or ():
            yield Completion(text=text, policy="reference")


def _labelled(data: Any, place: Place, faults: Faults) -> Record | None:
    before = faults.count
    line = build(_MetaExample, data, place, faults)
    if line is None:
        return None
    prompt = _prompt(line, (line.category,) if line.category else (), place, faults)
    rubric = _rubric([{"criterion": line.rubric, "points": 1.0, "tags": []}], "rubric", place, faults)
    if prompt is None or rubric is None or faults.count > before:
        return None
    key = rubric.criteria[0].key
    people = (*line.anonymized_physician_ids, *[None] * len(line.binary_labels))
    labels = tuple(
        Verdict.scored(key, float(met), sample=sample, detail=person)
        for sample, (met, person) in enumerate(zip(line.binary_labels, people, strict=False))
    )
    completion = Completion(text=line.completion, id=line.completion_id)
    name = usable_name(f"healthbench-meta-{line.prompt_id}-{key}")  # other prompts have the same criterion
    return Record(prompt, rubric, (completion,), labels, id=line.prompt_id, name=name, place=place)


def _prompt(line: _Line, tags: tuple[str, ...], place: Place, faults: Faults) -> Prompt | None:
    """The conversation. The benchmark's canary stays with every copy, as a tag."""
    if line.canary:
        tags = (*tags, f"canary:{line.canary}")
    messages = [message.model_dump() for message in line.prompt]
    return build(Prompt, {"messages": messages, "tags": tags}, place, Renamed(faults, {"messages": "prompt"}))


def _rubric(items: list[dict[str, Any]], field: str, place: Place, faults: Faults) -> Rubric | None:
    """Criteria have the same keys wherever they are read: axis and digest of the text, counted on where repeated."""
    criteria = []
    seen: Counter[str] = Counter()
    for item in items:
        axis = next((tag.removeprefix("axis:") for tag in item["tags"] if tag.startswith("axis:")), "criterion")
        key = f"{axis}-{sha256(item['criterion'].encode()).hexdigest()[:8]}"
        seen[key] += 1
        key = key if seen[key] == 1 else f"{key}-{seen[key]}"
        criteria.append({"key": key, "text": item["criterion"], "weight": item["points"], "tags": item["tags"]})
    rubric = build(Rubric, {"criteria": criteria, "formula": "healthbench"}, place, faults, (field,))
    if rubric is not None:
        check_formula(rubric, place, faults)
    return rubric
