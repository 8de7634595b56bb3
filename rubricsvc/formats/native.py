"""Our own format: YAML for people, JSONL for programs. `docs/formats.md` describes it field by field.

The short forms are expanded (``_criterion``, ``_groups``, …); the values of ``rubricsvc.core`` check the result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any, TextIO

from rubricsvc.core import formulas, reward
from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.label import OVERALL, Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric, level_value
from rubricsvc.errors import InvalidError
from rubricsvc.formats.errors import FileErrors, Location
from rubricsvc.formats.fields import build, check_fields
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.record import Record, annotators
from rubricsvc.formats.yaml_records import write

PROMPT = ("prompt", "reference", "documents", "tags", "item")
RUBRIC = ("criteria", "formula", "min_coverage", "groups", "expression")
FIELDS = ("id", "name", *PROMPT, *RUBRIC, "completions", "labels")


def read(file: InputFile) -> Iterator[Record]:
    """Yield the valid records; what is wrong with the others is added to ``file.errors``."""
    for number, (data, location) in enumerate(file.records(), start=1):
        name = file.path.stem if number == 1 else f"{file.path.stem}-{number}"
        record = parse(data, location, file.errors, default_name=name)
        if record is not None:
            yield record


def parse(data: Any, location: Location, errors: FileErrors, *, default_name: str = "") -> Record | None:
    """Return the record in plain data, or None after adding its errors."""
    before = errors.count
    if not isinstance(data, dict):
        errors.expected(location, "dict_type", "a mapping with prompt and criteria", data)
        return None
    check_fields(data, FIELDS, location, errors)
    if "prompt" not in data and "criteria" not in data:
        errors.add(location, "missing", "expected prompt or criteria, found neither")
    prompt = prompt_of(data, location, errors) if "prompt" in data else None
    rubric = _rubric(data, location, errors) if any(name in data for name in RUBRIC) else None
    completions = _completions(data.get("completions", []), location, errors)
    labels = _labels(data.get("labels", {}), rubric, location, errors)
    if completions and "prompt" not in data:
        errors.add(location, "missing", "completions need the prompt that they answer", ("completions",))
    if labels and len(completions) != 1:
        message = f"labels belong to one completion, and this record has {len(completions)}"
        errors.add(location, "value_error", message, ("labels",))
    id_, name = (_name(field, data.get(field), location, errors) for field in ("id", "name"))
    if errors.count > before:
        return None
    return Record(prompt, rubric, completions, labels, id_, name or rubric_name(id_ or default_name), location)


def _name(field: str, value: Any, location: Location, errors: FileErrors) -> str | None:
    if field == "id" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        errors.expected(location, "string_type", "some text", value, (field,))
    elif len(value) > MAX_NAME_LENGTH:
        message = f"expected at most {MAX_NAME_LENGTH} characters, found {len(value)}"
        errors.add(location, "string_too_long", message, (field,))
    elif field == "name" and ("@" in value or value != value.strip() or value.isdecimal()):
        what = "a name without '@', without spaces around it, and not of digits alone"
        errors.expected(location, "value_error", what, value, (field,))
    else:
        return value
    return None


def rubric_name(text: str) -> str:
    """Return a valid rubric name made of the id of a prompt or the name of a file."""
    name = text.strip().replace("@", "-")
    if name.isdecimal():
        name = f"rubric-{name}"
    if len(name) > MAX_NAME_LENGTH:
        name = f"{name[: MAX_NAME_LENGTH - 9].rstrip()}-{sha256(text.encode()).hexdigest()[:8]}"
    return name


def prompt_of(data: dict[str, Any], location: Location, errors: FileErrors) -> Prompt | None:
    """Return the prompt of a record (a text or a list of messages), or None after adding its errors."""
    fields = {name: data[name] for name in PROMPT[1:] if name in data}
    content = data["prompt"]
    if isinstance(content, list):
        fields["messages"] = content
    elif isinstance(content, str) and content.strip():
        # a YAML block ends with a line break that was not typed: the same prompt elsewhere has the same digest
        fields["messages"] = [{"role": "user", "content": content.removesuffix("\n")}]
    else:
        errors.expected(location, "string_type", "a text or a list of messages", content, ("prompt",))
        return None
    return build(Prompt, fields, location, errors, names={"messages": "prompt"})


def _rubric(data: dict[str, Any], location: Location, errors: FileErrors) -> Rubric | None:
    before = errors.count
    criteria = data.get("criteria")
    if not isinstance(criteria, list) or not criteria:
        errors.expected(location, "list_type", "a list of criteria", criteria, ("criteria",))
        return None
    numbers: dict[str, int] = {}
    expanded = []
    for number, item in enumerate(criteria):
        criterion = _criterion(item, number, location, errors)
        key = criterion.get("key")
        if isinstance(key, str) and numbers.setdefault(key, number) != number:
            message = f"duplicate key {key!r}, first used by criteria[{numbers[key]}]"
            errors.add(location, "duplicate_key", message, ("criteria", number, "key"))
            criterion["key"] = f"{key} {number}"  # so that it is not reported again
        expanded.append(criterion)
    fields: dict[str, Any] = {"criteria": expanded, "groups": _groups(data.get("groups", []), location, errors)}
    fields |= {name: data[name] for name in ("formula", "min_coverage", "expression") if name in data}
    rubric = build(Rubric, fields, location, errors)
    return rubric if rubric is None or errors.count > before else check_formula(rubric, location, errors)


def check_formula(rubric: Rubric, location: Location, errors: FileErrors) -> Rubric | None:
    """Return the rubric, or None after adding an error if its formula is unknown or does not allow its weights."""
    try:
        reward.check_formula(rubric)
    except formulas.FormulaError as error:
        errors.add(location, "formula", str(error), ("formula",))
        return None
    return rubric


def _criterion(item: Any, number: int, location: Location, errors: FileErrors) -> dict[str, Any]:
    """Expand a criterion: a bare text has weight 1, and the key defaults to c1, c2 and so on."""
    if isinstance(item, str):
        item = {"text": item}
    if not isinstance(item, dict):
        errors.expected(location, "dict_type", "a text or a mapping with text", item, ("criteria", number))
        item = {"text": "invalid"}
    expanded = {"key": f"c{number + 1}", **item}
    for field, expand in _EXPAND.items():
        if field in expanded:
            try:
                expanded[field] = expand(expanded[field])
            except _ShapeError as error:
                errors.expected(location, "shape", str(error), expanded.pop(field), ("criteria", number, field))
    return expanded


class _ShapeError(ValueError):
    """Names what is expected instead."""


def _scale(given: Any) -> Any:
    if given == "binary":
        return {"kind": "binary"}
    if isinstance(given, list) and len(given) == 2:
        return {"kind": "numeric", "low": given[0], "high": given[1]}
    if isinstance(given, dict) and "kind" in given:
        return given
    if isinstance(given, dict) and len(given) > 1:
        return {"kind": "ordinal", "levels": [{"label": label, "value": value} for label, value in given.items()]}
    raise _ShapeError("binary, [low, high] or a mapping of levels to values")


def _check(given: Any) -> Any:
    if isinstance(given, str) and given:
        return {"name": given}
    if isinstance(given, dict) and "name" in given:
        return given
    if isinstance(given, dict) and len(given) == 1 and isinstance(args := next(iter(given.values())), dict):
        return {"name": next(iter(given)), "args": args}
    raise _ShapeError("the name of a check, or {name: {arguments}}")


def _group_path(given: Any) -> Any:
    if isinstance(given, str):
        return given.split("/") if given else []
    if isinstance(given, list):
        return given
    raise _ShapeError("a group, or a path of groups as a/b or a list")


_EXPAND: dict[str, Callable[[Any], Any]] = {"scale": _scale, "check": _check, "group": _group_path}


def _groups(given: Any, location: Location, errors: FileErrors) -> list[Any]:
    if isinstance(given, dict):
        given = [{"path": path, "weight": weight} for path, weight in given.items()]
    if not isinstance(given, list):
        errors.expected(location, "list_type", "a mapping of groups to weights, or a list", given, ("groups",))
        return []
    expanded = []
    for number, group in enumerate(given):
        if isinstance(group, dict) and "path" in group:
            try:
                expanded.append({**group, "path": _group_path(group["path"])})
            except _ShapeError as error:
                errors.expected(location, "shape", str(error), group["path"], ("groups", number, "path"))
        else:
            expanded.append(group)
    return expanded


def _completions(given: Any, location: Location, errors: FileErrors) -> tuple[Completion, ...]:
    if not isinstance(given, list):
        errors.expected(location, "list_type", "a list of completions", given, ("completions",))
        return ()
    items = ({"text": item} if isinstance(item, str) else item for item in given)
    built = (build(Completion, item, location, errors, ("completions", n)) for n, item in enumerate(items))
    return tuple(completion for completion in built if completion is not None)


def _labels(given: Any, rubric: Rubric | None, location: Location, errors: FileErrors) -> tuple[Label, ...]:
    """Return people's labels: by criterion key (or ``overall``) a value, a list of values, or values by person.

    A value is a number in [0, 1], a boolean, the name of a level, or null (the person could not tell).
    """
    if not isinstance(given, dict):
        errors.expected(location, "dict_type", "a mapping of criterion keys to values", given, ("labels",))
        return ()
    labels: list[Label] = []
    for key, values in given.items():
        path = ("labels", key)
        criterion = rubric.by_key.get(key) if rubric is not None else None
        if rubric is not None and criterion is None and key != OVERALL:
            errors.expected(location, "unknown_criterion", f"one of {', '.join(list(rubric.by_key)[:8])}", key, path)
            continue
        listed = values if isinstance(values, list) else [values]
        people = (
            values if isinstance(values, dict) else dict(zip(annotators([None] * len(listed)), listed, strict=True))
        )
        for person, given_value in people.items():
            is_level = criterion is not None and isinstance(given_value, str)
            try:
                value = level_value(criterion.scale, given_value) if criterion and is_level else given_value
            except InvalidError as error:
                errors.add(location, "unknown_level", str(error), path)
                continue
            if value is not None and not (isinstance(value, int | float) and 0 <= value <= 1):
                errors.expected(location, "label_value", "a value from 0 to 1, true, false or null", value, path)
                continue
            fields = {"criterion": key, "annotator": person, "value": None if value is None else float(value)}
            if (label := build(Label, fields, location, errors, path)) is not None:
                labels.append(label)
    return tuple(labels)


def dump(records: Iterable[Record], stream: TextIO, *, yaml: bool = False) -> None:
    """Write records so that `read` returns equal ones: JSONL, or YAML documents for people."""
    for record in records:
        data = plain(record)
        if yaml:
            write(data, stream)
        else:
            stream.write(json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n")


def plain(record: Record) -> dict[str, Any]:
    """Return the record as plain data in this format, without the fields that have their defaults."""
    data: dict[str, Any] = {}
    if record.id is not None:
        data["id"] = record.id
    if record.name:
        data["name"] = record.name
    if record.prompt is not None:
        fields = record.prompt.model_dump(mode="json", exclude_defaults=True)
        messages = fields.pop("messages")
        text = messages[0]["content"]
        is_text = len(messages) == 1 and messages[0]["role"] == "user" and text.strip() and not text.endswith("\n")
        data |= {"prompt": text if is_text else messages, **fields}
    if record.rubric is not None:
        fields = record.rubric.model_dump(mode="json", exclude_defaults=True)
        for criterion, value in zip(fields["criteria"], record.rubric.criteria, strict=True):
            if "scale" in criterion:  # its kind is a default too, and must not be left out
                criterion["scale"]["kind"] = value.scale.kind
            if value.weight.is_integer() and "weight" in criterion:
                criterion["weight"] = int(value.weight)
        data |= fields
    if record.completions:
        data["completions"] = [
            {"text": completion.text, **completion.model_dump(mode="json", exclude_defaults=True)}
            for completion in record.completions
        ]
    if record.labels:
        by_key: dict[str, dict[str, float | None]] = {}
        for label in record.labels:
            by_key.setdefault(label.criterion, {})[label.annotator] = label.value
        data["labels"] = {key: _plain_labels(values) for key, values in by_key.items()}
    return data


def _plain_labels(values: dict[str, float | None]) -> Any:
    """Return the values of one criterion by person; without the names where they are those of unnamed people."""
    if list(values) != annotators([None] * len(values)):
        return values
    return list(values.values()) if len(values) > 1 else next(iter(values.values()))
