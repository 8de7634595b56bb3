"""A record of a file, as plain data (`Entry`) and as values (`Record`), the errors in it, and our own format.

Our format is YAML for people and JSONL for programs; `docs/formats.md` describes it field by field. `read` expands the
short forms (``_rubric_fields``, …), and the values of ``rubricsvc.core`` check the result.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from hashlib import sha256
from itertools import count, takewhile
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, StringConstraints, ValidationError

from rubricsvc.core import reward
from rubricsvc.core.base import MAX_NAME_LENGTH, Value
from rubricsvc.core.prompt import Completion, Prompt, ignored_note
from rubricsvc.core.rubric import MAX_EXAMPLES, Criterion, Rubric, RubricExample, example_errors
from rubricsvc.core.scale_values import label_value
from rubricsvc.core.states import APPROVED, RubricState
from rubricsvc.core.validation_messages import FieldPath, closest, describe, field_messages
from rubricsvc.core.verdict import OVERALL, Label
from rubricsvc.errors import FormatError, InvalidError, cut
from rubricsvc.schemas.base import FileProblem

MAX_LISTED = 20  # errors in the message of an exception
MAX_KEPT = 1000  # errors of one file that are kept; more are only counted
MAX_CRITERIA = 20_000  # criteria of one rubric
_SKIP = "correct them; imports can leave the invalid records out with --skip-invalid (in Python: skip_invalid=True)"


@dataclass(frozen=True, slots=True)
class Location:
    """Where a record is in its file.

    ``positions`` (YAML) has the line and the column of each field by its path from the root of the document, and
    ``root`` is the path of the record. Lines and columns count from 1. ``origins`` has, for fields of a record that a
    mapping made, the paths in the file that they were made of.
    """

    file: str
    line: int | None = None
    column: int | None = None
    positions: Mapping[FieldPath, tuple[int, int]] = field(default_factory=dict)
    root: FieldPath = ()
    origins: Mapping[FieldPath, FieldPath] = field(default_factory=dict)

    def error(self, code: str, message: str, path: FieldPath = ()) -> FileProblem:
        """Return an error in a field, at its position or that of the closest field around it."""
        for length in range(len(path), 0, -1):
            if (origin := self.origins.get(path[:length])) is not None:
                path = (*origin, *path[length:])
                break
        full = self.root + path
        while full not in self.positions and len(full) > len(self.root):
            full = full[:-1]
        line, column = self.positions.get(full, (self.line, self.column))
        steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
        path_ = cut(steps.removeprefix("."), 200)
        return FileProblem(file=self.file, line=line, column=column, path=path_, code=code, message=cut(message, 600))


class InvalidFileError(FormatError):
    """The file has these ``errors``; nothing of it was used."""

    def __init__(self, errors: Sequence[FileProblem], count: int | None = None, *, hint: str = _SKIP) -> None:
        lines = [str(error) for error in errors[:MAX_LISTED]]
        count = count or len(errors)
        if count > len(lines):
            lines.append(f"… and {count - len(lines)} more")
        head = f"{count} errors in {errors[0].file}:\n  " if count > 1 else ""
        place = errors[0].model_copy(update={"path": "", "message": ""})
        super().__init__(head + "\n  ".join(lines), hint=hint, path=str(place))
        self.errors = errors


@dataclass
class FileErrors:
    """The errors of one file, in the order of its lines. The first ``MAX_KEPT`` are kept, all are counted.

    ``invalid`` counts the records that have errors; ``notes`` say what was read in another way than it was written.
    After ``limit`` errors the file is not read any further.
    """

    limit: float = math.inf
    errors: list[FileProblem] = field(default_factory=list)
    notes: list[FileProblem] = field(default_factory=list)
    note_count: int = 0
    count: int = 0
    invalid: int = 0

    def add(self, *errors: FileProblem, notes: Sequence[FileProblem] = ()) -> None:
        """Add the errors of one record, or the notes of a valid one; too many are an InvalidFileError."""
        notes = [one for one in notes if one.line or one not in self.notes]  # one without a line is of the file
        self.note_count += len(notes)
        self.notes += notes[: MAX_KEPT - len(self.notes)]
        self.count += len(errors)
        self.invalid += bool(errors)
        if kept := errors[: MAX_KEPT - len(self.errors)]:
            self.errors += kept
            self.errors.sort(key=lambda error: (error.file, error.line or 0, error.column or 0))
        if self.count > self.limit:
            self.raise_if_any("correct them first: the file was not read any further")

    def raise_if_any(self, hint: str = "") -> None:
        """Raise InvalidFileError if there are errors."""
        if self.count:
            raise InvalidFileError(self.errors, self.count, hint=hint or _SKIP)


def file_error(location: Location, code: str, message: str, hint: str = "") -> InvalidFileError:
    """Return the exception for a file that cannot be read any further."""
    return InvalidFileError([location.error(code, message)], hint=hint)


Model = TypeVar("Model", bound=BaseModel)
Row = dict[str, Any]  # a line of JSONL, or a row of CSV, as plain data

RubricCheck = Callable[[Rubric], None]
"""Raises InvalidError, with a ``path``, for a rubric with an unknown check or invalid arguments."""

MISSING: Any = object()  # in place of a value that is not in a record. Null is missing too, but for a literal ``=null``


class Placed(dict[str, Any]):
    """A mapping that stands elsewhere in the file than its place in the prepared data says."""

    def __init__(self, fields: Mapping[str, Any], path: FieldPath) -> None:
        super().__init__(fields)
        self.path = path


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a record, and the path in the file that it is from; None for a literal."""

    value: Any
    path: FieldPath | None = None

    @classmethod
    def at(cls, value: Any, path: FieldPath) -> "Node":
        """Return the node of a value that was found at a path."""
        return cls(MISSING if value is None else value, value.path if isinstance(value, Placed) else path)

    def items(self) -> list["Node"]:
        """Return the items of a list, or the values of a mapping; none of another value."""
        pairs: Iterable[tuple[str | int, Any]] = ()
        if isinstance(self.value, dict):
            pairs = self.value.items()
        elif isinstance(self.value, list):
            pairs = enumerate(self.value)
        return [Node.at(value, (*(self.path or ()), step)) for step, value in pairs]


class GivenLabel(Value):
    """A label as it was written. With a ``level``, which is a text, it has no value yet: the scale defines it."""

    label: Label
    level: str | None = None

    def resolve(self, criterion: Criterion | None) -> Label:
        """Return the label with the value that its level has on the scale of the criterion."""
        if self.level is None:
            return self.label
        return self.label.model_copy(update={"value": label_value(criterion.scale if criterion else None, self.level)})


@dataclass(frozen=True, slots=True)
class Record:
    """A prompt with its rubric, completions and labels.

    ``prompt`` is None where the rubric is for any prompt; ``rubric`` is None in a file of prompts and completions.
    ``labels`` are of the record's one completion. ``id`` is the id of the prompt in the file, ``name`` the name of the
    rubric, and ``location`` where the rubric is in the file. A record may name a stored rubric instead of having one
    (``rubric_ref``); its labels are ``given_labels`` then. ``text_only``: the format holds only the text of a prompt.
    A rubric whose ``state`` in the file is not approved is a draft wherever it is imported.
    """

    prompt: Prompt | None
    rubric: Rubric | None
    completions: tuple[Completion, ...] = ()
    labels: tuple[Label, ...] = ()
    id: str | None = None
    name: str = ""
    location: Location = field(default=Location(""), compare=False, repr=False)
    rubric_ref: int | str | None = None
    given_labels: tuple[GivenLabel, ...] = ()
    text_only: bool = False
    state: RubricState = APPROVED


@dataclass(slots=True)
class Entry:
    """One record of a file: its ``data``, where it is, and the ``errors`` in it.

    ``number`` counts the records of the file from 1; ``name`` is the stem of the file's name, with the number behind it
    from the second record on. In CSV all values are texts (``is_csv``). ``check`` is called with the rubric. ``notes``
    say what was read in another way than it was written; each error and note is ``seen`` once.
    """

    data: Any
    location: Location
    name: str = ""
    number: int = 1
    errors: list[FileProblem] = field(default_factory=list)
    check: RubricCheck | None = None
    is_csv: bool = False
    notes: list[FileProblem] = field(default_factory=list)
    seen: set[FileProblem] = field(default_factory=set)

    def add(self, code: str, message: str, path: FieldPath = (), *, note: bool = False) -> None:
        """Add an error in the field ``path``; with ``note``, a note on it: the record is valid."""
        error = self.location.error(code, message, path)
        if error not in self.seen:
            self.seen.add(error)
            (self.notes if note else self.errors).append(error)

    def note(self, code: str, message: str) -> None:
        """Add a note on the file, which is added once."""
        note = Location(self.location.file).error(code, message)
        self.notes += [note] if note not in self.notes else []

    def expected(self, code: str, what: str, value: Any, path: FieldPath = ()) -> None:
        """Add the error "expected ``what``, found ``value``"."""
        self.add(code, f"expected {what}, found {describe(value)}", path)

    def mapping(self, allowed: Collection[str]) -> dict[str, Any]:
        """Return the data, after adding an error for each field that is not ``allowed``."""
        if not isinstance(self.data, dict):
            self.expected("dict_type", "a mapping", self.data)
            raise InvalidFileError(self.errors)
        for name in self.data:
            if name not in allowed:
                self.unknown(name, allowed)
        return self.data

    def unknown(self, name: str, allowed: Collection[str], path: FieldPath = ()) -> None:
        """Add the error for a field that is not ``allowed``; for the column of a sheet that no name is like, a note."""
        if self.is_csv and not get_close_matches(name, allowed, cutoff=0.8):
            self.note("ignored", f"column {name!r} is not read")
        else:
            self.add("extra_forbidden", f"unknown field; {closest(name, allowed)}", (*path, name))

    def build(
        self,
        model: type[Model],
        data: Any,
        path: FieldPath = (),
        *,
        nested: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Model:
        """Return ``data``, which is at ``path`` in the record, as a ``model``.

        ``nested`` has the fields of ``data`` whose own fields are in the record itself, with the names of these in the
        record where they differ.
        """
        ignored = set[str]()
        try:
            built = model.model_validate_json(json.dumps(data), strict=True, context=ignored)
        except ValidationError as error:
            for one in field_messages(error, model=model, data=data):
                message = "is nested too deep" if one.code == "json_invalid" else one.message  # we wrote this JSON
                inner = one.path
                if inner and (names := (nested or {}).get(str(inner[0]))) is not None:
                    inner = (*(names.get(str(step), step) for step in inner[1:2]), *inner[2:])
                self.add(one.code, message, (*path, *inner))
            raise InvalidFileError(self.errors) from None
        for name in sorted(ignored):  # each once a file
            self.note("ignored", ignored_note({name}))
        return built


PROMPT = ("prompt", "reference", "documents", "tags", "item")
RUBRIC = ("criteria", "formula", "min_coverage", "groups", "expression", "reasoning_marks")
FIELDS = ("id", "name", "state", *PROMPT, *RUBRIC, "examples", "rubric", "completions", "labels")

_Id = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME_LENGTH)]


def _is_name(text: str) -> str:
    if "@" in text or text.isdecimal():
        raise ValueError("expected a name without '@', and not of digits alone")
    return text


class _Fields(Value):
    """A record without short forms."""

    id: _Id | None = None
    name: Annotated[_Id, AfterValidator(_is_name)] | None = None
    state: RubricState = APPROVED
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
    fields: dict[str, Any] = {name: data[name] for name in ("id", "name", "state", "completions") if name in data}
    if type(data.get("id")) is int:  # and not bool
        fields["id"] = str(data["id"])
    if "prompt" in data:
        fields["prompt"] = prompt_fields(entry, data)
    if isinstance(data.get("criteria"), list) and len(data["criteria"]) > MAX_CRITERIA:
        message = f"has {len(data['criteria'])} criteria, more than {MAX_CRITERIA}; split the rubric"
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
        entry.add("missing", "labels need criteria: write them, or name a stored rubric (rubric: NAME)", ("labels",))
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
    record = Record(built.prompt, rubric, built.completions, labels, built.id, name, entry.location, state=built.state)
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
    taken, numbers = set(cut), defaultdict[str, Iterator[int]](lambda: count(2))
    for name in cut:
        key = name
        while key in keys or (key != name and key in taken):
            key = f"{name[: MAX_NAME_LENGTH - 8]}-{next(numbers[name])}"
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
            for name, expected in _SHORT_FORMS.items():
                if name in expanded and (value := _expanded(name, expanded[name])) is None:
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


_SHORT_FORMS = {
    "scale": "binary, [low, high], or levels with their values: {poor: 0, good: 1}",
    "check": "the name of a check, or {name: {arguments}}",
}


def _expanded(field: str, given: Any) -> dict[str, Any] | None:
    """Return the scale or the check that is given in full or in one of the ``_SHORT_FORMS``; None if it is neither."""
    match field, given:
        case "scale", "binary":
            return {"kind": "binary"}
        case "scale", [low, high]:
            return {"kind": "numeric", "low": low, "high": high}
        case ("scale", {"kind": _}) | ("check", {"name": _}):
            return dict(given)
        case "scale", dict() if len(given) > 1:
            return {"kind": "ordinal", "levels": [{"label": label, "value": value} for label, value in given.items()]}
        case "check", str() if given:
            return {"name": given}
        case "check", dict() if len(given) == 1 and isinstance(args := next(iter(given.values())), dict):
            return {"name": next(iter(given)), "args": args}
    return None


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
        key = f"c{place}" if key is None or type(key) is int else key
        label = {**one, "criterion": key, "value": number if level is None else None}
        nested: dict[str, dict[str, str]] = {"annotator": {}, "value": {}} if isinstance(given, dict) else {}
        with suppress(InvalidFileError):  # the entry has the error
            yield path, GivenLabel(label=entry.build(Label, label, path, nested=nested), level=level)


def _labels(entry: Entry, given: Iterable[Given], criteria: Mapping[str, Criterion]) -> Iterator[Label]:
    for path, one in given:
        key = one.label.criterion
        if key not in criteria and key != OVERALL:
            entry.expected("unknown_criterion", f"one of {', '.join(list(criteria)[:8])}", key, path)
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
                    found = label_value(criterion.scale, value)
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


def rubric_errors(rubric: Rubric, location: Location, check: RubricCheck | None) -> Iterator[FileProblem]:
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


COMPLETION_FIELDS = (*PROMPT, "prompt_id", "completion", *Completion.model_fields)


class CompletionLine(Value):
    """A completion with its ``prompt`` or its ``prompt_id``."""

    completion: Completion
    prompt: Prompt | None = None
    prompt_id: int | str | None = None


def kind_of(first: Any) -> str | None:
    """Return ``completions`` or ``labels`` if a file with this first record holds them by themselves; else None."""
    if not isinstance(first, dict):
        return None
    is_row = all(isinstance(one, str) for one in first.values())  # of a sheet, with a column for each criterion
    if first.keys() & {"completion_id", "completion_digest"} and (
        first.keys() & {"annotator", "criterion"} or (is_row and "rubric" in first)
    ):
        return "labels"
    parts = {"prompt", "prompt_id"}, {"completion", "text", "messages"}
    is_chat = "messages" in first and first.keys() <= {*COMPLETION_FIELDS}
    answers = is_chat or all(first.keys() & names for names in parts)
    if not answers and "value" in first and first.keys() & {"completion_id", "annotator", "outcome"}:
        return "labels"  # or verdicts
    of_truthfulqa = str(first.get("prompt")).rstrip().endswith(("\nTrue:", "\nHelpful:"))
    if first.keys() & {"criteria", "rubrics", "rubric", "criterions"} or of_truthfulqa:
        return None
    return "completions" if answers else None


def read_completion(entry: Entry, *, needs_prompt: bool = True) -> Iterator[tuple[CompletionLine, Location]]:
    """Yield the completion; what is wrong with it is added to the entry.

    Of messages without a prompt, those up to the last one of a user are the prompt.
    """
    data = entry.mapping(COMPLETION_FIELDS)
    if needs_prompt and isinstance(turns := data.get("messages"), list) and not data.keys() & {"prompt", "prompt_id"}:
        asked = [n for n, one in enumerate(turns, 1) if isinstance(one, dict) and one.get("role") == "user"]
        data |= {"prompt": turns[: asked[-1]], "messages": turns[asked[-1] :]} if asked else {}
    both = "prompt" in data and "prompt_id" in data
    if both or (needs_prompt and not data.keys() & {"prompt", "prompt_id"}):
        entry.add("missing", f"expected prompt or prompt_id, found {'both' if both else 'neither'}")
    texts = [name for name in ("completion", "text") if name in data]
    if len(texts) > 1 or not (texts or "messages" in data):
        entry.add("missing", f"expected completion (or text, or messages), found {' and '.join(texts) or 'none'}")
    completion = {name: data[name] for name in Completion.model_fields if name in data}
    if isinstance(step := data.get("step"), str) and step.isdecimal():
        completion["step"] = int(step)  # of a CSV, whose cells are texts
    if "completion" in data:
        given = [data["completion"]] if isinstance(data["completion"], dict) else data["completion"]
        completion["messages" if isinstance(given, list) else "text"] = given
    fields = {"completion": completion, "prompt_id": data.get("prompt_id")}
    fields |= {"prompt": prompt_fields(entry, data)} if "prompt" in data else {}
    own = {name: "completion" for name in ("text", "messages") if "completion" in data}
    nested: dict[str, dict[str, str]] = {"prompt": {"messages": "prompt"}, "completion": own}
    line = entry.build(CompletionLine, fields, nested=nested)
    first = takewhile(lambda one: one.role != "assistant", line.completion.messages)
    before = [one.content.strip() for one in first if one.role == "user"]
    if line.prompt is not None and before and before[-1] != line.prompt.messages[-1].content.strip():
        entry.note("prompt", "messages begin with another turn of a user than their prompt, which judges read")
    yield line, entry.location


class LabelLine(GivenLabel):
    """A label, and the completion and the rubric that it belongs to.

    A ``completion_id`` that is a number is an id in the database; a text is the one that the completion came with.
    With digests of prompt and completion, these name the completion; the ids may be those of another database. The
    criterion of a sheet's column may be its text, or none; the note is that of its ``note_column``, if there is one.
    """

    completion_id: int | str = ""
    prompt_id: int | str | None = None
    rubric: int | str
    prompt_digest: str | None = None
    completion_digest: str | None = None
    rubric_digest: str | None = None
    note_column: str | None = None


_REFERENCES = tuple(one for one in LabelLine.model_fields if one not in (*GivenLabel.model_fields, "note_column"))
LABEL_FIELDS = (*_REFERENCES, "rubric_id", *Label.model_fields)
_NAMED = ("prompt_digest", "completion_digest", "rubric", "criterion")
SHEET = (*_NAMED, "annotator", "value", "note", "prompt", "completion", "text", "values")
"""Columns of a sheet to fill in; those from ``prompt`` on are for the person alone. Ids could tell policies apart."""
_NOTES = ("note", "notes", "remark", "kommentar", "comment", "comments")


def read_label(entry: Entry) -> Iterator[tuple[LabelLine, Location]]:
    """Yield the labels of a line, or of a row of a sheet; what is wrong with it is added to the entry.

    A sheet without the columns criterion and value has a column for each criterion. An empty cell is no label, and the
    annotator is that of the file's name if no column says it.
    """
    is_wide = entry.is_csv and not entry.data.keys() & {"criterion", "value"}
    note = next((name for name in _NOTES if name in entry.data), "note") if entry.is_csv else "note"
    data = entry.data if is_wide else entry.mapping((*LABEL_FIELDS, *SHEET, note) if entry.is_csv else LABEL_FIELDS)
    if entry.is_csv:
        data = {"annotator": Path(entry.location.file).stem, "note": data.get(note), **data}
        if "prompt_id" not in data and (id_ := data.get("completion_id", "")).isdecimal():
            data["completion_id"] = int(id_)
    elif "value" not in data:
        entry.add("missing", "is missing; write null if the person could not tell", ("value",))
    if ("prompt_digest" in data) != ("completion_digest" in data):
        missing = "completion_digest" if "prompt_digest" in data else "prompt_digest"
        entry.add("missing", "is missing: a completion is named by both digests", (missing,))
    if not data.keys() & {"completion_id", "completion_digest"}:
        entry.add("missing", "is missing", ("completion_id",))
    if isinstance(completion_id := data.get("completion_id"), int | str):
        if isinstance(completion_id, str) and data.get("prompt_id") is None:
            entry.add("missing", "is missing beside a completion_id that is a text: an id of the file", ("prompt_id",))
        elif isinstance(completion_id, int) and "prompt_id" in data:
            message = f"{completion_id} is an id in the database; write it as a text, or remove prompt_id"
            entry.add("invalid", message, ("completion_id",))
    references = {name: data[name] for name in _REFERENCES if name in data}
    label = {name: data[name] for name in Label.model_fields if name in data}
    columns = [name for name in entry.data if name not in (*_REFERENCES, "rubric_id", "annotator")]
    for one in [{**label, "criterion": name, "value": data[name]} for name in columns] if is_wide else [label]:
        fields = references | {"note_column": note if is_wide else None}
        if isinstance(one.get("value"), str):
            fields["level"] = one.pop("value")
        elif isinstance(one.get("value"), bool):
            one["value"] = float(one["value"])
        if not entry.is_csv or "level" in fields:
            yield entry.build(LabelLine, {**fields, "label": one}, nested={"label": {}}), entry.location
