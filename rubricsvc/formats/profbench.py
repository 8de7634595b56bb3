"""ProfBench (arXiv 2510.18941): weighted criteria of professionals, and whether models' responses fulfil them.

A row becomes a record without completions, or one for each model whose labels (``o3_fulfilment``) are in it, with its
completion where the row has the response (``o3_response``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.formats.errors import InvalidFileError
from rubricsvc.formats.foreign import prompt_in, rubric_in
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.record import Entry, ForeignModel, Record, Row, Text

WEIGHTS = {"Critical": 4.0, "Major": 3.0, "Minor": 2.0, "Additional": 1.0}
_FULFILMENT = "_fulfilment"
_VALUES = {"yes": 1.0, "true": 1.0, "1": 1.0, "no": 0.0, "false": 0.0, "0": 0.0}


class _Item(ForeignModel):
    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    criterion_description: Text
    criterion_weight: str
    criterion_type: str | list[str] | None = None


class _Task(ForeignModel):
    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    task_id: str | int | None = None
    domain: str = ""
    prompt: Text | None = None
    rubrics: Annotated[tuple[_Item, ...], Field(min_length=1)]


def matches(first: Any) -> bool:
    """Return whether a file with this first record is ProfBench's."""
    items = first.get("rubrics") if isinstance(first, dict) else None
    return bool(
        isinstance(items, list) and items and isinstance(items[0], dict) and "criterion_description" in items[0]
    )


def read(entry: Entry) -> Iterator[Record]:
    """Yield the records of a task."""
    task = entry.build(_Task, entry.data)
    criteria = []
    for place, item in enumerate(task.rubrics):
        if (weight := WEIGHTS.get(item.criterion_weight.strip().title())) is None:
            path = ("rubrics", place, "criterion_weight")
            entry.expected("literal_error", f"one of {', '.join(WEIGHTS)}", item.criterion_weight, path)
            continue
        types = [item.criterion_type] if isinstance(item.criterion_type, str) else item.criterion_type or []
        criteria.append(
            Criterion(key=f"c{place + 1}", text=item.criterion_description, weight=weight, tags=tuple(types))
        )
    id_ = str(task.task_id) if task.task_id not in (None, "") else None
    prompt = Prompt.of(task.prompt, tags=[task.domain] if task.domain else []) if task.prompt else None
    name = rubric_name(f"profbench-{id_ or entry.name}")
    models = dict.fromkeys(
        field.removesuffix(_FULFILMENT)
        for item in task.rubrics
        for field in item.model_extra or ()
        if field.endswith(_FULFILMENT)
    )
    labelled = {model: tuple(_labels(entry, task, model)) for model in models}
    if entry.errors:
        raise InvalidFileError(entry.errors)
    rubric = Rubric(criteria=tuple(criteria))
    for model, labels in labelled.items():
        text = (task.model_extra or {}).get(f"{model}_response")
        completions = (Completion(text=text, policy=model),) if isinstance(text, str) else ()
        yield Record(prompt, rubric, completions, labels, id_, name, entry.location)
    if not labelled:
        yield Record(prompt, rubric, id=id_, name=name, location=entry.location)


def _labels(entry: Entry, task: _Task, model: str) -> Iterator[Label]:
    for place, item in enumerate(task.rubrics):
        given = (item.model_extra or {}).get(model + _FULFILMENT)
        value = _VALUES.get(str(given).strip().casefold())
        if given is not None and value is None:
            entry.expected("shape", "yes or no", given, ("rubrics", place, model + _FULFILMENT))
        elif given is not None:
            yield Label(criterion=f"c{place + 1}", annotator="dataset", value=value, note=f"response of {model}")


def dump(record: Record) -> Iterator[Row]:
    """Yield the row of a task."""
    rubric, prompt = rubric_in(record, "profbench"), prompt_in(record, "profbench")
    names = {weight: name for name, weight in WEIGHTS.items()}
    items = []
    for number, criterion in enumerate(rubric.criteria):
        if criterion.weight not in names:
            message = f"profbench has the weights 1, 2, 3 and 4; criterion {criterion.key!r} has {criterion.weight:g}"
            raise InvalidError(message, hint="choose another --format", path=f"criteria[{number}].weight")
        item = {"criterion_description": criterion.text, "criterion_weight": names[criterion.weight]}
        items.append(item | {"criterion_type": list(criterion.tags)})
    domain = prompt.tags[0] if prompt.tags else ""
    yield {"task_id": record.id, "domain": domain, "prompt": prompt.text, "rubrics": items}
