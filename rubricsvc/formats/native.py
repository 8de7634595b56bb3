"""Our own format: YAML for people, JSONL for programs. `docs/formats.md` describes it field by field.

The short forms are written out (``_criterion``, ``_groups``, …) and the result is checked by the core's own values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any, TextIO

from rubricsvc.core import reward
from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.label import OVERALL
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric, level_value
from rubricsvc.core.validation_messages import describe
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from rubricsvc.formats.documents import documents
from rubricsvc.formats.errors import Faults, Place, Renamed, Steps
from rubricsvc.formats.fields import build, unknown_fields
from rubricsvc.formats.record import Record
from rubricsvc.formats.source import Source

PROMPT = ("prompt", "reference", "documents", "tags", "item")
RUBRIC = ("criteria", "formula", "min_coverage", "groups", "expression")
FIELDS = ("id", "name", *PROMPT, *RUBRIC, "completions", "labels")


def read(source: Source, faults: Faults) -> Iterator[Record]:
    """The file's records; what is wrong goes to ``faults``, and its record is left out.

    Raises:
        FormatError: the file cannot be read as text, YAML or JSON at all.
    """
    for number, (data, place) in enumerate(documents(source, faults), start=1):
        name = source.stem if number == 1 else f"{source.stem}-{number}"
        record = parse(data, place, faults, default_name=name)
        if record is not None:
            yield record


def parse(data: Any, place: Place, faults: Faults, *, default_name: str = "") -> Record | None:
    """One record out of plain data; or None, with its faults added."""
    before = faults.count
    if not isinstance(data, dict):
        faults.add(place, f"expected a mapping with prompt and criteria, found {describe(data)}")
        return None
    unknown_fields(data, FIELDS, place, faults, ())
    if "prompt" not in data and "criteria" not in data:
        faults.add(place, "neither prompt nor criteria; expected at least one of them")
    prompt = prompt_of(data, place, faults) if "prompt" in data else None
    rubric = _rubric(data, place, faults) if any(name in data for name in RUBRIC) else None
    completions = _completions(data.get("completions", []), place, faults)
    labels = _labels(data.get("labels", {}), rubric, place, faults)
    if completions and "prompt" not in data:
        faults.add(place, "completions need the prompt that they answer", ("completions",))
    if labels and len(completions) != 1:
        faults.add(place, f"labels belong to one completion, found {len(completions)}", ("labels",))
    id_ = _text(data, "id", place, faults)
    name = _text(data, "name", place, faults)
    if faults.count > before:
        return None
    return Record(prompt, rubric, completions, labels, id_, name or usable_name(id_ or default_name), place)


def usable_name(text: str) -> str:
    """A rubric's name made of an id or of a file's name: without what a name may not have, and never too long."""
    name = text.strip().replace("@", "-")
    if name.isdecimal():
        name = f"rubric-{name}"
    if len(name) > MAX_NAME_LENGTH:
        name = f"{name[: MAX_NAME_LENGTH - 9].rstrip()}-{sha256(text.encode()).hexdigest()[:8]}"
    return name


def _text(data: dict[str, Any], field: str, place: Place, faults: Faults) -> str | None:
    value = data.get(field)
    if isinstance(value, int) and not isinstance(value, bool) and field == "id":
        return str(value)
    if value is not None and (not isinstance(value, str) or not value.strip()):
        faults.add(place, f"expected some text, found {describe(value)}", (field,))
        return None
    if value is not None and len(value) > MAX_NAME_LENGTH:
        faults.add(place, f"expected at most {MAX_NAME_LENGTH} characters, found {len(value)}", (field,))
        return None
    if field == "name" and value is not None and ("@" in value or value != value.strip() or value.isdecimal()):
        faults.add(place, f"expected a name without '@', blanks around it or digits alone, found {value!r}", (field,))
        return None
    return value


def prompt_of(data: dict[str, Any], place: Place, faults: Faults) -> Prompt | None:
    """The prompt of a record: a text, or a list of messages; with reference, documents and tags beside it."""
    fields = {name: data[name] for name in PROMPT[1:] if name in data}
    said = data["prompt"]
    if isinstance(said, list):
        fields["messages"] = said
    elif isinstance(said, str) and said.strip():
        # a YAML block ends with a line break that nobody typed: the same question elsewhere must be the same prompt
        fields["messages"] = [{"role": "user", "content": said.removesuffix("\n")}]
    else:
        faults.add(place, f"expected a text or a list of messages, found {describe(said)}", ("prompt",))
        return None
    renamed = Renamed(faults, {"messages": "prompt"})
    return build(Prompt, fields, place, renamed)


def _rubric(data: dict[str, Any], place: Place, faults: Faults) -> Rubric | None:
    before = faults.count
    criteria = data.get("criteria")
    if not isinstance(criteria, list) or not criteria:
        faults.add(place, f"expected a list of criteria, found {describe(criteria)}", ("criteria",))
        return None
    keys: dict[str, int] = {}
    full = []
    for number, item in enumerate(criteria):
        criterion = _criterion(item, number, place, faults)
        key = criterion.get("key")
        if isinstance(key, str) and keys.setdefault(key, number) != number:
            faults.add(place, f"key {key!r} is taken by criteria[{keys[key]}]; give each its own", _at(number, "key"))
            criterion["key"] = f"{key} {number}"  # told once is enough
        full.append(criterion)
    fields: dict[str, Any] = {"criteria": full, "groups": _groups(data.get("groups", []), place, faults)}
    fields |= {name: data[name] for name in ("formula", "min_coverage", "expression") if name in data}
    rubric = build(Rubric, fields, place, faults)
    if rubric is not None and faults.count == before:
        check_formula(rubric, place, faults)
    return rubric


def check_formula(rubric: Rubric, place: Place, faults: Faults) -> None:
    """A fault where the rubric's formula is unknown, or does not allow its weights."""
    try:
        reward.check_formula(rubric)
    except reward.FormulaError as error:
        faults.add(place, str(error), ("formula",))


def _at(number: int, field: str) -> Steps:
    return ("criteria", number, field)


def _criterion(item: Any, number: int, place: Place, faults: Faults) -> dict[str, Any]:
    """A criterion in full: a bare text is one of weight 1, and the key defaults to c1, c2, …"""
    if isinstance(item, str):
        item = {"text": item}
    if not isinstance(item, dict):
        faults.add(place, f"expected a text or a mapping with text, found {describe(item)}", ("criteria", number))
        item = {"text": "told above"}
    full = {"key": f"c{number + 1}", **item}
    for field, expand in _EXPAND.items():
        if field in full:
            try:
                full[field] = expand(full[field])
            except _ShapeError as error:
                faults.add(place, f"{error}, found {describe(full.pop(field))}", _at(number, field))
    return full


class _ShapeError(ValueError):
    """What was expected instead."""


def _scale(given: Any) -> Any:
    if given == "binary":
        return {"kind": "binary"}
    if isinstance(given, list) and len(given) == 2:
        return {"kind": "numeric", "low": given[0], "high": given[1]}
    if isinstance(given, dict) and "kind" in given:
        return given
    if isinstance(given, dict) and len(given) > 1:
        return {"kind": "ordinal", "levels": [{"label": label, "value": value} for label, value in given.items()]}
    raise _ShapeError("expected binary, [low, high] or a mapping of levels to values")


def _check(given: Any) -> Any:
    if isinstance(given, str) and given:
        return {"name": given}
    if isinstance(given, dict) and "name" in given:
        return given
    if isinstance(given, dict) and len(given) == 1 and isinstance(args := next(iter(given.values())), dict):
        return {"name": next(iter(given)), "args": args}
    raise _ShapeError("expected the name of a check, or {name: {arguments}}")


def _path(given: Any) -> Any:
    if isinstance(given, str):
        return given.split("/") if given else []
    if isinstance(given, list):
        return given
    raise _ShapeError("expected a group, or a path of groups as a/b or a list")


_EXPAND: dict[str, Callable[[Any], Any]] = {"scale": _scale, "check": _check, "group": _path}


def _groups(given: Any, place: Place, faults: Faults) -> list[Any]:
    if isinstance(given, dict):
        given = [{"path": path, "weight": weight} for path, weight in given.items()]
    if not isinstance(given, list):
        faults.add(place, f"expected a mapping of groups to weights, or a list, found {describe(given)}", ("groups",))
        return []
    full = []
    for number, group in enumerate(given):
        try:
            full.append(
                {**group, "path": _path(group["path"])} if isinstance(group, dict) and "path" in group else group
            )
        except _ShapeError as error:
            faults.add(place, f"{error}, found {describe(group['path'])}", ("groups", number, "path"))
    return full


def _completions(given: Any, place: Place, faults: Faults) -> tuple[Completion, ...]:
    if not isinstance(given, list):
        faults.add(place, f"expected a list of completions, found {describe(given)}", ("completions",))
        return ()
    built = []
    for number, item in enumerate(given):
        fields = {"text": item} if isinstance(item, str) else item
        completion = completion_of(fields, place, faults, ("completions", number))
        if completion is not None:
            built.append(completion)
    return tuple(built)


def completion_of(fields: Any, place: Place, faults: Faults, steps: Steps = ()) -> Completion | None:
    """A completion; or None, with its faults added."""
    return build(Completion, fields, place, faults, steps)


def _labels(given: Any, rubric: Rubric | None, place: Place, faults: Faults) -> tuple[Verdict, ...]:
    """People's verdicts: criterion key (or ``overall``) to a value in [0, 1], to a level's name, to null (cannot tell),
    or to several of them: a list, one a person, or a mapping of people's names to them."""
    if not isinstance(given, dict):
        faults.add(place, f"expected a mapping of criterion keys to values, found {describe(given)}", ("labels",))
        return ()
    labels: list[Verdict] = []
    for key, values in given.items():
        steps = ("labels", key)
        if rubric is not None and key != OVERALL and key not in rubric.by_key:
            faults.add(place, f"no criterion has this key; there are {', '.join(list(rubric.by_key)[:8])}", steps)
            continue
        criterion = rubric.by_key.get(key) if rubric is not None else None
        for sample, (person, said) in enumerate(_by_person(values)):
            try:
                value = level_value(criterion.scale, said) if isinstance(said, str) and criterion else said
            except InvalidError as error:
                faults.add(place, str(error), steps)
                continue
            if value is None:
                labels.append(Verdict.abstained(key, sample=sample, detail=person))
            elif isinstance(value, int | float) and 0 <= value <= 1:
                labels.append(Verdict.scored(key, float(value), sample=sample, detail=person))
            else:
                faults.add(place, f"expected a value from 0 to 1, true, false or null, found {describe(value)}", steps)
    return tuple(labels)


def _by_person(values: Any) -> list[tuple[str | None, Any]]:
    """What each person said; a list does not say who they are."""
    if isinstance(values, dict):
        return [(str(person), value) for person, value in values.items()]
    return [(None, value) for value in (values if isinstance(values, list) else [values])]


def dump(records: Iterable[Record], stream: TextIO, *, yaml: bool = False) -> None:
    """Write records so that `read` gives the same ones back: JSONL, or YAML documents for people."""
    from rubricsvc.formats.yamlwrite import write

    for record in records:
        data = plain(record)
        if yaml:
            write(data, stream)
        else:
            stream.write(json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n")


def plain(record: Record) -> dict[str, Any]:
    """The record as plain data in this format; what has its default is left out."""
    data: dict[str, Any] = {}
    if record.id is not None:
        data["id"] = record.id
    if record.name:
        data["name"] = record.name
    if record.prompt is not None:
        fields = record.prompt.model_dump(mode="json", exclude_defaults=True)
        messages = fields.pop("messages")
        said = messages[0]["content"]
        bare = len(messages) == 1 and messages[0]["role"] == "user" and said.strip() and not said.endswith("\n")
        data |= {"prompt": said if bare else messages, **fields}
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
        labels: dict[str, list[Verdict]] = {}
        for label in record.labels:
            labels.setdefault(label.criterion, []).append(label)
        data["labels"] = {key: _plain_labels(said) for key, said in labels.items()}
    return data


def _plain_labels(said: list[Verdict]) -> Any:
    people = {label.detail: label.value for label in said}
    if None not in people and len(people) == len(said):
        return people
    return [label.value for label in said] if len(said) > 1 else said[0].value
