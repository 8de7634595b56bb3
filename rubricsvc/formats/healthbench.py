"""HealthBench (arXiv 2505.08775), and its meta-evaluation: JSONL as in openai/simple-evals.

One line of the benchmark is a conversation with physicians' criteria and their points (negative: a pitfall). One line
of the meta-evaluation is one criterion of one completion with the label of each physician.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from typing import Annotated, Any

from pydantic import Field

from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.formats.errors import FileErrors, Location
from rubricsvc.formats.fields import ForeignModel, Text, build
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.native import check_formula, rubric_name
from rubricsvc.formats.record import Record, annotators


class _Message(ForeignModel):
    role: str
    content: str


class _Item(ForeignModel):
    criterion: Text
    points: float
    tags: tuple[str, ...] = ()


class _Ideal(ForeignModel):
    ideal_completion: str | None = None
    ideal_completions_ref_completions: list[str] | None = None


class _Line(ForeignModel):
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


def read(file: InputFile) -> Iterator[Record]:
    """Yield a record for each valid line; errors are added to ``file.errors``."""
    return file.parse(_parse)


def _parse(data: Any, location: Location, errors: FileErrors) -> Record | None:
    meta = isinstance(data, dict) and "binary_labels" in data
    return _meta_example(data, location, errors) if meta else _example(data, location, errors)


def _example(data: Any, location: Location, errors: FileErrors) -> Record | None:
    before = errors.count
    line = build(_Example, data, location, errors)
    if line is None:
        return None
    prompt = _prompt(line, line.example_tags, location, errors)
    rubric = _rubric([item.model_dump() for item in line.rubrics], "rubrics", location, errors)
    if prompt is None or rubric is None or errors.count > before:
        return None
    name = rubric_name(f"healthbench-{line.prompt_id}")
    return Record(prompt, rubric, tuple(_completions(line)), id=line.prompt_id, name=name, location=location)


def _completions(line: _Example) -> Iterator[Completion]:
    if line.completion is not None:
        yield Completion(text=line.completion)
    if ideal := line.ideal_completions_data:
        if ideal.ideal_completion is not None:
            yield Completion(text=ideal.ideal_completion, policy="physician")
        for text in ideal.ideal_completions_ref_completions or ():
            yield Completion(text=text, policy="reference")


def _meta_example(data: Any, location: Location, errors: FileErrors) -> Record | None:
    before = errors.count
    line = build(_MetaExample, data, location, errors)
    if line is None:
        return None
    prompt = _prompt(line, (line.category,) if line.category else (), location, errors)
    rubric = _rubric([{"criterion": line.rubric, "points": 1.0, "tags": []}], "rubric", location, errors)
    if prompt is None or rubric is None or errors.count > before:
        return None
    key = rubric.criteria[0].key
    unnamed = [None] * (len(line.binary_labels) - len(line.anonymized_physician_ids))
    people = annotators([*line.anonymized_physician_ids, *unnamed])
    built = [
        build(Label, {"criterion": key, "annotator": person, "value": float(met)}, location, errors)
        for person, met in zip(people, line.binary_labels, strict=False)
    ]
    if errors.count > before:
        return None
    completion = Completion(text=line.completion, id=line.completion_id)
    name = rubric_name(f"healthbench-meta-{line.prompt_id}-{key}")  # other prompts have the same criterion
    return Record(
        prompt, rubric, (completion,), tuple(filter(None, built)), id=line.prompt_id, name=name, location=location
    )


def _prompt(line: _Line, tags: tuple[str, ...], location: Location, errors: FileErrors) -> Prompt | None:
    """Build the conversation. The benchmark's canary is kept as a tag."""
    if line.canary:
        tags = (*tags, f"canary:{line.canary}")
    messages = [message.model_dump() for message in line.prompt]
    return build(Prompt, {"messages": messages, "tags": tags}, location, errors, names={"messages": "prompt"})


def _rubric(items: list[dict[str, Any]], field: str, location: Location, errors: FileErrors) -> Rubric | None:
    """Build the rubric. A key is made of axis and digest of the text, so that it is the same in every subset."""
    criteria = []
    seen: Counter[str] = Counter()
    for item in items:
        axis = next((tag.removeprefix("axis:") for tag in item["tags"] if tag.startswith("axis:")), "criterion")
        key = f"{axis}-{sha256(item['criterion'].encode()).hexdigest()[:8]}"
        seen[key] += 1
        key = key if seen[key] == 1 else f"{key}-{seen[key]}"
        criteria.append({"key": key, "text": item["criterion"], "weight": item["points"], "tags": item["tags"]})
    rubric = build(Rubric, {"criteria": criteria, "formula": "healthbench"}, location, errors, (field,))
    return None if rubric is None else check_formula(rubric, location, errors)
