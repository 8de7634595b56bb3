"""Our own format: YAML for people, JSONL for programs. `docs/formats.md` describes it field by field.

The short forms are expanded (``_rubric_fields``, …); the values of ``rubricsvc.core`` check the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import Annotated, Any

from pydantic import AfterValidator, StringConstraints

from rubricsvc.core import reward
from rubricsvc.core.base import MAX_NAME_LENGTH, Value, numbered_names
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import MAX_EXAMPLES, Criterion, Rubric, RubricExample, example_errors, level_value
from rubricsvc.core.validation_messages import FieldPath
from rubricsvc.core.verdict import OVERALL, Label
from rubricsvc.errors import InvalidError
from rubricsvc.formats import input_file
from rubricsvc.formats.record import Entry, FieldError, GivenLabel, InvalidFileError, Location, Record, RubricCheck

PROMPT = ("prompt", "reference", "documents", "tags", "item")
RUBRIC = ("criteria", "formula", "min_coverage", "groups", "expression")
FIELDS = ("id", "name", *PROMPT, *RUBRIC, "examples", "rubric", "completions", "labels")

_Id = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME_LENGTH)]


def _is_name(text: str) -> str:
    if "@" in text or text.isdecimal():
        raise ValueError("expected a name without '@', and not of digits alone")
    return text


class _Fields(Value):
    """A record without short forms."""

    id: _Id | None = None
    name: Annotated[_Id, AfterValidator(_is_name)] | None = None
    prompt: Prompt | None = None
    rubric: Rubric | None = None
    completions: tuple[Completion, ...] = ()


def read(entry: Entry, *, mapped: bool = False) -> Iterator[Record]:
    """Yield the record; what is wrong with it is added to the entry.

    Of one that a mapping made of another format (``mapped``), texts stay as they are, labels may be without the
    completion, and the name is made valid.
    """
    data = entry.mapping(FIELDS)
    if mapped and isinstance(name := data.get("name"), str):
        data["name"] = rubric_name(name)
    if mapped and isinstance(data.get("prompt"), str) and data["prompt"].strip():
        data["prompt"] = [{"role": "user", "content": data["prompt"]}]
    fields: dict[str, Any] = {name: data[name] for name in ("id", "name", "completions") if name in data}
    if type(data.get("id")) is int:  # and not bool
        fields["id"] = str(data["id"])
    if isinstance(data.get("completions"), list):
        fields["completions"] = [{"text": one} if isinstance(one, str) else one for one in data["completions"]]
    if "prompt" in data:
        fields["prompt"] = prompt_fields(entry, data)
    if isinstance(data.get("criteria"), list) and len(data["criteria"]) > input_file.MAX_CRITERIA:
        message = f"has {len(data['criteria'])} criteria, more than {input_file.MAX_CRITERIA}; split the rubric"
        entry.add("too_long", message, ("criteria",))
        raise InvalidFileError(entry.errors)
    if any(name in data for name in RUBRIC):
        fields["rubric"] = _rubric_fields(entry, data)
    if "prompt" not in data and "criteria" not in data:
        entry.add("missing", "expected prompt or criteria, found neither")
    if data.get("completions") and "prompt" not in data:
        entry.add("missing", "completions need the prompt that they answer", ("completions",))
    if "examples" in data and "criteria" not in data:
        entry.add("missing", "examples need the criteria that they are of", ("examples",))
    if "rubric" in data and "criteria" in data:
        entry.add("value_error", "expected criteria or the name of a stored rubric, found both", ("rubric",))
    if "rubric" in data and (not isinstance(data["rubric"], str | int) or isinstance(data["rubric"], bool)):
        entry.expected("string_type", "the name or the id of a stored rubric", data["rubric"], ("rubric",))
    if data.get("labels") and "criteria" not in data and "rubric" not in data:
        message = "labels need criteria: write them, or name a stored rubric (rubric: NAME)"
        entry.add("missing", message, ("labels",))
    given = list(_given_labels(entry, data.get("labels", {}), data.get("criteria")))
    built = entry.build(_Fields, fields, nested={"prompt": {"messages": "prompt"}, "rubric": {}})
    rubric = built.rubric
    if rubric is not None and "examples" in data:
        rubric = rubric.model_copy(update={"examples": _examples(entry, data["examples"], rubric.by_key)})
    labels = tuple(_labels(entry, given, rubric.by_key)) if rubric is not None else ()
    if given and not mapped and len(built.completions) != 1:
        message = f"labels belong to one completion, and this record has {len(built.completions)}"
        entry.add("value_error", message, ("labels",))
    if entry.errors and rubric is not None:  # of a valid record the caller asks
        entry.errors += rubric_errors(rubric, entry.location, entry.check)
    if entry.errors:
        raise InvalidFileError(entry.errors)
    name = built.name or rubric_name(built.id or entry.name)
    record = Record(built.prompt, rubric, built.completions, labels, built.id, name, entry.location)
    if mapped:
        record = replace(record, text_only=entry.is_csv, name=name if rubric is not None else "")
    if "rubric" in data:
        record = replace(record, rubric_ref=data["rubric"], given_labels=tuple(one for _, one in given))
    yield record


def rubric_name(text: str) -> str:
    """Return a valid rubric name made of the id of a prompt or the name of a file."""
    name = text.strip().replace("@", "-")
    if name.isdecimal():
        name = f"rubric-{name}"
    if len(name) > MAX_NAME_LENGTH:
        name = f"{name[: MAX_NAME_LENGTH - 9].rstrip()}-{sha256(text.encode()).hexdigest()[:8]}"
    return name


def keys_of(names: Iterable[str | None]) -> list[str]:
    """Return keys of criteria: their names where they can be keys, else c1, c2 …; repeated ones are numbered."""
    cut = [(name or "").strip()[:MAX_NAME_LENGTH] or f"c{number}" for number, name in enumerate(names, start=1)]
    keys: dict[str, None] = {}
    taken, numbered = set(cut), dict[str, Iterator[str]]()
    for name in cut:
        key = name
        if name in keys:
            free = numbered.setdefault(name, numbered_names(name))
            key = next(one for one in free if one not in keys and one not in taken)
        keys[key] = None
    return list(keys)


def prompt_fields(entry: Entry, data: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fields of the prompt of a record, which is a text or a list of messages."""
    content = data["prompt"]
    if isinstance(content, str) and content.strip():
        # a YAML block ends with a line break that was not typed: the same prompt elsewhere has the same digest
        content = [{"role": "user", "content": content.removesuffix("\n")}]
    elif not isinstance(content, list):
        entry.expected("string_type", "a text or a list of messages", content, ("prompt",))
        return None
    return {"messages": content} | {name: data[name] for name in PROMPT[1:] if name in data}


def _rubric_fields(entry: Entry, data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the rubric without short forms.

    A criterion that is a text has weight 1, and the keys default to c1, c2 and so on.
    """
    fields = {name: data[name] for name in RUBRIC if name in data}
    numbers: dict[str, int] = {}
    criteria: list[Any] = []
    for number, item in enumerate(data["criteria"] if isinstance(data.get("criteria"), list) else ()):
        given = {"text": item} if isinstance(item, str) else item
        if isinstance(given, dict):
            expanded = _with_path({"key": f"c{number + 1}", **given}, "group")
            for name, (expand, expected) in _SHORT_FORMS.items():
                if name in expanded and (value := expand(expanded[name])) is None:
                    entry.expected("shape", expected, expanded.pop(name), ("criteria", number, name))
                elif name in expanded:
                    expanded[name] = value
            key = expanded["key"]
            if isinstance(key, str) and (first := numbers.setdefault(key, number)) != number:
                message = f"duplicate key {key!r}, first used by criteria[{first}]"
                entry.add("duplicate_key", message, ("criteria", number, "key"))
                expanded["key"] = f"{key} {number}"  # so that it is not reported again
            given = expanded
        criteria.append(given)
    if isinstance(data.get("criteria"), list):
        fields["criteria"] = criteria
    groups = data.get("groups")
    if isinstance(groups, dict):
        groups = [{"path": path, "weight": weight} for path, weight in groups.items()]
    if isinstance(groups, list):
        fields["groups"] = [_with_path(group, "path") for group in groups]
    return fields


def _with_path(item: Any, field: str) -> Any:
    """Expand the path of a group, which may be written as ``content/facts``."""
    if not isinstance(item, dict) or not isinstance(item.get(field), str):
        return item
    return {**item, field: item[field].split("/") if item[field] else []}


def _scale(given: Any) -> dict[str, Any] | None:
    match given:
        case "binary":
            return {"kind": "binary"}
        case [low, high]:
            return {"kind": "numeric", "low": low, "high": high}
        case dict() if "kind" in given:
            return given
        case dict() if len(given) > 1:
            return {"kind": "ordinal", "levels": [{"label": label, "value": value} for label, value in given.items()]}
    return None


def _check(given: Any) -> dict[str, Any] | None:
    match given:
        case str() if given:
            return {"name": given}
        case dict() if "name" in given:
            return given
        case dict() if len(given) == 1 and isinstance(args := next(iter(given.values())), dict):
            return {"name": next(iter(given)), "args": args}
    return None


_SHORT_FORMS: dict[str, tuple[Callable[[Any], dict[str, Any] | None], str]] = {
    "scale": (_scale, "binary, [low, high] or a mapping of levels to values"),
    "check": (_check, "the name of a check, or {name: {arguments}}"),
}


Given = tuple[FieldPath, GivenLabel]


def _given_labels(entry: Entry, given: Any, criteria: Any) -> Iterator[Given]:
    """Yield people's labels, with their paths.

    They are by criterion key (or ``overall``) a value, a list of values, or values by person; or they are a list of
    mappings with ``criterion`` (a key, or a number from 1: its place), ``annotator``, ``value`` and ``note``. A value
    is a number in [0, 1], a boolean, the name of a level, or null (the person could not tell).
    """
    if not isinstance(given, dict | list):
        entry.expected("dict_type", "a mapping of criterion keys to values", given, ("labels",))
        return
    listed: list[tuple[FieldPath, Any]] = []
    if isinstance(given, list):
        listed = [(("labels", n), one) for n, one in enumerate(given)]
    for key, values in given.items() if isinstance(given, dict) else ():
        several = values if isinstance(values, list) else [values]
        people = values if isinstance(values, dict) else {f"person {n}": one for n, one in enumerate(several, start=1)}
        listed += (
            (("labels", key), {"criterion": key, "annotator": person, "value": value})
            for person, value in people.items()
        )
    listed_criteria = criteria if isinstance(criteria, list) else []
    keys = [one.get("key") if isinstance(one, dict) else None for one in listed_criteria]
    for path, one in listed:
        if not isinstance(one, dict):
            entry.expected("dict_type", "a mapping with criterion, annotator and value", one, path)
            continue
        value, place = one.get("value"), one.get("criterion", 1)
        key = keys[place - 1] if isinstance(place, int) and 0 < place <= len(keys) else place
        level = value if isinstance(value, str) else None
        number = float(value) if isinstance(value, bool) else value
        label = {**one, "criterion": key or f"c{place}", "value": number if level is None else None}
        nested: dict[str, dict[str, str]] = {"annotator": {}, "value": {}} if isinstance(given, dict) else {}
        with suppress(InvalidFileError):  # the entry has the error
            yield path, GivenLabel(label=entry.build(Label, label, path, nested=nested), level=level)


def _labels(entry: Entry, given: Iterable[Given], criteria: Mapping[str, Criterion]) -> Iterator[Label]:
    unknown = set[str]()
    for path, one in given:
        key = one.label.criterion
        if key not in criteria and key != OVERALL:
            if key not in unknown:
                entry.expected("unknown_criterion", f"one of {', '.join(list(criteria)[:8])}", key, path)
            unknown.add(key)
            continue
        try:
            yield one.resolve(criteria.get(key))
        except InvalidError as error:
            entry.add("unknown_level", str(error), path)


def _examples(entry: Entry, given: Any, criteria: Mapping[str, Criterion]) -> tuple[RubricExample, ...] | None:
    """Return the examples of a record; what is wrong with them is added to the entry.

    A verdict may be a level of the criterion's scale, true or false; a prompt may be a text.
    """
    if not isinstance(given, list) or len(given) > MAX_EXAMPLES:
        entry.expected("list_type", f"a list of at most {MAX_EXAMPLES} examples", given, ("examples",))
        return None
    examples = []
    for number, item in enumerate(given):
        if not isinstance(item, dict):
            entry.expected("dict_type", "a mapping", item, ("examples", number))
            continue
        fields = {"key": f"e{number + 1}", **item}
        if isinstance(prompt := item.get("prompt"), str | list):
            text = prompt.removesuffix("\n") if isinstance(prompt, str) else ""
            fields["prompt"] = {"messages": [{"role": "user", "content": text}] if isinstance(prompt, str) else prompt}
        for key, value in verdicts.items() if isinstance(verdicts := item.get("verdicts"), dict) else ():
            criterion, found = criteria.get(key), value
            try:
                if isinstance(value, bool):
                    found = float(value)
                elif isinstance(value, str) and criterion is not None:
                    found = level_value(criterion.scale, value)
            except InvalidError as error:
                entry.add("unknown_level", str(error), ("examples", number, "verdicts", key))
                found = {"min": 0.0}  # so that it is not reported again
            fields["verdicts"] = {**fields["verdicts"], key: found}
        if isinstance(evidence := item.get("evidence"), dict):
            fields["evidence"] = {key: [one] if isinstance(one, str) else one for key, one in evidence.items()}
        with suppress(InvalidFileError):  # the entry has the error
            examples.append(entry.build(RubricExample, fields, ("examples", number)))
    if len(examples) == len(given):
        for path, message in example_errors(examples, criteria):
            code = "unknown_criterion" if message.startswith("unknown criterion") else "value_error"
            entry.add(code, message, path)
    return tuple(examples) or None


def rubric_errors(rubric: Rubric, location: Location, check: RubricCheck | None) -> Iterator[FieldError]:
    """Yield the errors in the formula and in the checks of a rubric with valid fields."""
    try:
        reward.check_formula(rubric)
    except reward.FormulaError as error:
        yield location.error("formula", str(error), ("formula",))
    for number, criterion in enumerate(rubric.criteria):
        if check is None or criterion.check is None:
            continue
        try:
            check(Rubric.model_construct(criteria=(criterion,)))  # one by one, to report every error
        except InvalidError as error:
            steps = [int(step) if step.isdecimal() else step for step in error.path.split(".")[2:]]
            short = ("check", criterion.check.name)  # written as {name: {arguments}}
            if (*location.root, "criteria", number, *short) in location.positions:
                steps[:2] = short
            yield location.error("check", f"{error}; {error.hint}", ("criteria", number, *steps))
    for path, message in reward.example_reward_errors(rubric):
        yield location.error("value_error", message, path)
