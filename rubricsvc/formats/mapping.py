"""Formats of other projects as data: a mapping file says how their records become records of the native format.

`docs/formats.md` describes the language: a text is the path of a field (``reward_model.rubrics``), ``=text`` a literal,
``"healthbench-{prompt_id}"`` a template; ``a? || b`` takes the first that is there, and ``a | name`` applies a function
(`Scope.call`). Every value keeps the path that it was made of, so that errors name it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Mapping as Names
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue

from rubricsvc.core.base import Value
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.validation_messages import FieldPath, closest, unknown_field
from rubricsvc.formats import dialects, input_file, native, openai_grader
from rubricsvc.formats.input_file import FORMULA, InputFile
from rubricsvc.formats.record import MISSING, Entry, InvalidFileError, Location, Node, Placed, Record, file_error

FOLDER = Path(__file__).parent / "mappings"
_OUTSIDE = r"(?![^{}]*\})"
_ALTERNATIVE, _PIPE = re.compile(r"\s*\|\|\s*" + _OUTSIDE), re.compile(r"\s*(?<!\|)\|(?!\|)\s*" + _OUTSIDE)
_SLOT, _VARIABLE = re.compile(r"\{([^{}]+)\}"), re.compile(r"<([^<>]+)>")
_CONTROL = ("each", "beside", "as", "let", "if", "has", "then", "else")
_RECORD = (*native.FIELDS, "let", "if", "has", "each", "as")


class Rows(Value):
    """How rows of CSV become one record: those with the same values of the columns ``by``.

    With ``fill`` a row without a value belongs to the record before. The rows are under the field ``under``.
    """

    by: tuple[str, ...]
    fill: bool = False
    under: str | None = None


def _is_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return text


class Mapping(Value):
    """A mapping file."""

    about: str = ""
    extends: str | None = None
    container: str = "json"
    detect: tuple[str, ...] = ()
    detector: str | None = None
    allowed: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    rows: Rows | None = None
    prepare: str | None = None
    tables: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    patterns: dict[str, Annotated[str, AfterValidator(_is_pattern)]] = Field(default_factory=dict)
    let: dict[str, JsonValue] = Field(default_factory=dict)
    checks: tuple[dict[str, JsonValue], ...] = ()
    record: dict[str, JsonValue]
    records: tuple[dict[str, JsonValue], ...] = ({},)


def load_mapping(path: str | Path) -> Mapping:
    """Read a mapping file."""
    file = InputFile(path)
    mappings = list(file.parse(_read_mapping))
    file.errors.raise_if_any("docs/formats.md describes mapping files")
    return mappings[0]


def _read_mapping(entry: Entry) -> Iterator[Mapping]:
    data = entry.data
    if isinstance(data, dict) and isinstance(base := data.get("extends"), str):
        known = FORMATS.get(base)
        if not isinstance(known, Reader):
            entry.add("not_found", f"unknown format {base!r}; {closest(base, FORMATS)}", ("extends",))
            return
        inherited = known.mapping.model_dump(mode="json", exclude={"detect", "extends", "about"})
        data = {**inherited, **data, "record": {**inherited["record"], **data.get("record", {})}}
    mapping = entry.build(Mapping, data)
    parts: list[tuple[FieldPath, Any]] = [((name,), getattr(mapping, name)) for name in ("let", "record", "records")]
    calls: list[tuple[FieldPath, str, str]] = []
    for path, part in parts:  # which grows
        if isinstance(part, str) and not part.startswith("="):
            for source, pipes, _ in _parsed(part):
                parts += ((path, slot) for slot in _SLOT.findall(source))
                calls += ((path, name, argument) for name, argument in pipes)
        elif isinstance(part, dict | list | tuple):
            inner = part.items() if isinstance(part, dict) else enumerate(part)
            parts += (((*path, step), item) for step, item in inner)
    for path, name, argument in calls:
        if name not in FUNCTIONS:
            entry.add("invalid", f"unknown function {name!r}; {closest(name, FUNCTIONS)}", path)
        elif name == "lookup" and argument.removesuffix("?") not in mapping.tables:
            entry.add("invalid", f"unknown table {argument!r}; {closest(argument, mapping.tables)}", path)
        elif name == "match" and argument.removesuffix("?") not in mapping.patterns:
            entry.add("invalid", f"unknown pattern {argument!r}; {closest(argument, mapping.patterns)}", path)
    fields_at: list[tuple[FieldPath, dict[str, Any]]] = [(("record",), mapping.record)]
    for path, fields in fields_at + [(("records", n), one) for n, one in enumerate(mapping.records)]:
        for name in fields.keys() - set(_RECORD):
            entry.add("extra_forbidden", unknown_field(name, _RECORD), (*path, name))
    if mapping.prepare is not None and mapping.prepare not in dialects.PREPARATIONS:
        entry.add("invalid", f"unknown preparation; {closest(mapping.prepare, dialects.PREPARATIONS)}", ("prepare",))
    if not entry.errors:
        yield mapping


@dataclass
class Reader:
    """Reads files by a mapping file, which is read when it is needed.

    ``counts`` has how often the function ``nth`` saw each value of a file.
    """

    path: str | Path
    counts: Counter[str] = field(default_factory=Counter)

    @cached_property
    def mapping(self) -> Mapping:
        """The mapping that is read by."""
        return load_mapping(self.path)

    def read(self, file: InputFile) -> Iterator[Record]:
        """Yield the records of the file's valid entries; errors are added to ``file.errors``."""
        self.counts.clear()
        entries: Iterator[Entry] | None = None
        if self.mapping.rows is not None:
            entries = _grouped(file, self.mapping.rows)
        elif self.mapping.prepare == "autorubric":
            entries = dialects.autorubric_parts(file)
        yield from file.parse(self.records, entries)

    def identifies(self, first: Any) -> bool:
        """Return whether a file with this first record has the format, by the mapping's ``detect``."""
        if not isinstance(first, dict | list):
            return False
        if self.mapping.detector is not None:
            return dialects.is_autorubric(first, plain=self.mapping.detector == "ldc")
        for fields in self.mapping.detect:
            scope = Scope.of(self, Entry(first, Location("")), first)
            present = (
                (scope.find(name.removeprefix("!")).value is not MISSING) != name.startswith("!")
                for name in re.split(r",\s*", fields)
            )
            if all(present):
                return True
        return False

    def records(self, entry: Entry) -> Iterator[Record]:
        """Yield the records of an entry; what is wrong with it is added to the entry."""
        scope, unknown = Scope.of(self, entry, entry.data), set[str]()
        for path, names in self.mapping.allowed.items():  # once for all items of a list
            node = scope.find(path) if path else scope.root
            for item in node.items() if isinstance(node.value, list) else [node]:
                for name in item.value if isinstance(item.value, dict) else ():
                    if name not in names and name not in unknown:
                        unknown.add(name)
                        entry.add("extra_forbidden", unknown_field(name, names), (*(item.path or ()), name))
        prepare = dialects.PREPARATIONS.get(self.mapping.prepare or "")
        known = len(entry.errors)
        prepared = list(prepare(entry)) if prepare else [entry.data]
        for check in self.mapping.checks:
            for one in scope.loop(check) if "each" in check else [scope]:
                if one.admits(check):
                    place = one.find(str(check.get("at", "."))).path or ()
                    entry.add(str(check["code"]), str(check["message"]), place, note=bool(check.get("note")))
        if len(entry.errors) > known:
            raise InvalidFileError(entry.errors)
        for data in prepared:
            if not isinstance(data, dict | list):
                entry.expected("dict_type", "a mapping", data)
                continue
            for fields in self.mapping.records:
                root = Scope.of(self, entry, data)
                spec = {**self.mapping.record, **fields}
                for scope in root.loop(spec) if "each" in spec else [root]:
                    if scope.admits(spec):
                        yield from _Builder(scope).records(spec)


@dataclass
class Scope:
    """What paths refer to: fields of the ``item``, of the ``root`` (``$.``), and ``names``."""

    reader: Reader
    entry: Entry
    root: Node
    item: Node
    names: dict[str, Node | str]

    @classmethod
    def of(cls, reader: Reader, entry: Entry, data: Any) -> Scope:
        """Return the scope of a whole record."""
        root = Node.at(data, ())
        given = {"$name": Node(entry.name), "$number": Node(entry.number)}
        return cls(reader, entry, root, root, {**given, **_texts(reader.mapping.let)})

    def find(self, path: str) -> Node:
        """Return the value at a path; MISSING, with the path where it would be."""
        for name in _VARIABLE.findall(path):
            value = self.find(name).value
            path = path.replace(f"<{name}>", "\0" if value is MISSING else str(value).replace(".", "\1"))
        if path == ".":
            return self.item
        head, *rest = path.split(".")
        if head in self.names:
            named = self.names[head]
            if isinstance(named, str):
                self.names[head] = Node(MISSING)  # a name that refers to itself
                named = self.names[head] = self.evaluate(named)
            node = named
        elif head == "$":
            node = self.root
        else:
            node, rest = self.item, [head, *rest] if head else rest
        for given in rest:
            step, path_ = given.replace("\1", "."), node.path or ()
            if isinstance(node.value, dict):
                node = Node.at(node.value.get(step, MISSING), (*path_, step))
            elif isinstance(node.value, list) and step.isdecimal():
                place = int(step)
                node = Node.at(node.value[place] if place < len(node.value) else MISSING, (*path_, place))
            else:
                if node.value is not MISSING:
                    self.entry.expected("dict_type", "a mapping", node.value, path_)
                node = Node(MISSING, (*path_, step))
        return node

    def evaluate(self, text: str, *, required: bool = True) -> Node:
        """Return the value of an expression; a path without ``?`` that is missing is an error of the entry."""
        if text.startswith("="):
            return _literal(text)
        alternatives = _parsed(text)
        node, known = Node(MISSING), 0
        for source, pipes, _ in alternatives:
            known = len(self.entry.errors)
            node = self._source(source)
            for name, argument in pipes:
                if node.value is not MISSING:
                    made = self.call(name, node, argument)
                    node = made if isinstance(made, Node) else Node(made, node.path)
            if node.value is not MISSING:
                return node
        if required and not alternatives[-1][2] and len(self.entry.errors) == known:
            self.entry.add("missing", "is missing", node.path or ())
        return node

    def call(self, name: str, node: Node, argument: str) -> Any:
        """Return what a function makes of a value; its path stays that of the value unless it is a `Node`.

        A value that is not as the function needs it is an error of the entry.
        """
        value, path, mapping = node.value, node.path or (), self.reader.mapping
        found: Any = MISSING
        match name:
            case "lookup":  # whatever its case; with ``?`` it may be missing
                values = mapping.tables[argument.removesuffix("?")]
                known = {key.casefold(): one for key, one in values.items()}
                found = known.get(str(value).strip().casefold(), MISSING)
                if found is MISSING and not argument.endswith("?"):
                    self.entry.expected("literal_error", f"one of {', '.join(values)}", value, path)
            case "match":  # the named groups of a regular expression that the whole text matches
                pattern = mapping.patterns[argument.removesuffix("?")]
                groups = re.fullmatch(pattern, value, re.DOTALL) if isinstance(value, str) else None
                if groups is not None:
                    found = Placed({key: text for key, text in groups.groupdict().items() if text is not None}, path)
                elif not argument.endswith("?"):
                    self.entry.expected("shape", f"a text that matches {pattern!r}", value, path)
            case "json":  # in a text, or in a list with one
                text = value[0] if isinstance(value, list) and len(value) == 1 else value
                try:
                    found = json.loads(text) if isinstance(text, str) else text
                except (ValueError, RecursionError):
                    self.entry.expected("json_invalid", "JSON", text, path)
            case "text":
                found = value if isinstance(value, str) and value else MISSING
                if found is MISSING:
                    self.entry.expected("string_type", "a text", value, path)
            case "number":  # in a cell of CSV
                try:
                    found = float(value)
                except (TypeError, ValueError):
                    self.entry.expected("shape", "a number such as 3 or -0.5", value, path)
            case "nth":  # -2 if the file had this text once before, and so on
                self.reader.counts[value] += 1
                times = self.reader.counts[value]
                found = f"-{times}" if times > 1 else ""
            case "applicable":  # the label of an option; null for one that says that the criterion is not applicable
                options = self.find(f"{argument}.options").items()
                absent = [
                    one.value.get("label") for one in options if isinstance(one.value, dict) and one.value.get("na")
                ]
                found = Node(None) if value in absent else node
            case "verl_key" | "verl_check" | "verl_rest":
                rest = name == "verl_rest" and self.find(argument).value is not MISSING
                found = dialects.verl(self.entry, node, name, mapping.tables["ifeval"], has_check=rest)
            case _:
                found = _plain(name, node, argument)
        return found

    def _source(self, text: str) -> Node:
        if text.startswith("="):
            return _literal(text)
        if "{" not in text:
            optional = text.endswith("?")
            node = self.find(text.removesuffix("?"))
            return Node(MISSING, node.path) if optional and node.value == "" else node
        parts = {slot: self.evaluate(slot) for slot in _SLOT.findall(text)}
        path = next((part.path for part in parts.values() if part.path), None)
        for part in parts.values():
            if part.value is MISSING:
                return Node(MISSING, part.path)
            if isinstance(part.value, list | dict):
                self.entry.expected("string_type", "a text", part.value, part.path or ())
                return Node(MISSING, path)
        return Node(_SLOT.sub(lambda slot: str(parts[slot[1]].value), text), path)

    def admits(self, spec: dict[str, Any]) -> bool:
        """Return whether the conditions of a part hold: ``if`` a value that counts, ``has`` one that may be empty."""
        if "has" in spec and self.find(spec["has"]).value is MISSING:
            return False
        if "if" not in spec:
            return True
        text = str(spec["if"])
        value = self.evaluate(text.removeprefix("!"), required=False).value
        return (value is not MISSING and bool(value)) != text.startswith("!")

    def loop(self, spec: dict[str, Any]) -> Iterator[Scope]:
        """Yield a scope for each item that a part with ``each`` is made for."""
        node = self.evaluate(spec["each"])
        if node.value is MISSING:
            return
        if not isinstance(node.value, list | dict):
            self.entry.expected("list_type", "a list", node.value, node.path or ())
            return
        others: list[Node] = []
        if "beside" in spec and isinstance((beside := self.evaluate(spec["beside"])).value, list):
            others = beside.items()
            if len(others) != len(node.value):
                expected = f"one item for each of the {len(others)} of {spec['beside']}"
                self.entry.expected("length", expected, node.value, node.path or ())
                return
        keys = list(node.value) if isinstance(node.value, dict) else None
        for place, child in enumerate(node.items()):
            share = place / max(len(node.value) - 1, 1)
            names = {
                **self.names,
                "$i": Node(place),
                "$n": Node(place + 1),
                "$up": Node(share),
                "$down": Node(1 - share),
            }
            if keys is not None:
                names["$key"] = Node(keys[place])
            if others:
                names["$beside"] = others[place]
            if "as" in spec:
                names[spec["as"]] = child
            names |= _texts(spec.get("let"))
            yield Scope(self.reader, self.entry, self.root, child, names)


FUNCTIONS = (
    *("lookup", "match", "json", "text", "number", "nth", "applicable", "verl_key", "verl_check", "verl_rest"),
    *("strip", "before", "split", "lines", "listed", "negative", "prefixed", "stems", "without", "given", "arguments"),
    *("asked", "sections", "sha256", "digest"),
)
"""The functions of mapping files: `Scope.call` and `_plain` have them."""


def _plain(name: str, node: Node, argument: str) -> Any:
    """Return what one of the functions without errors makes of a value; MISSING where there is nothing."""
    value, text = node.value, str(node.value)
    found: Any
    match name:
        case "strip":
            found = text.strip()
        case "before":
            found = text.partition(argument)[0]
        case "split":
            found = [one.strip() for one in text.split(argument) if one.strip()]
        case "lines":
            found = text.replace("\\n", "\n")
        case "listed":
            found = [value] if isinstance(value, str) else value
        case "negative":
            found = value if isinstance(value, int | float) and value < 0 else MISSING
        case "sha256":
            found = sha256(text.encode()).hexdigest()[: int(argument)]
        case "digest":
            found = digest(text)[: int(argument)]
        case "prefixed":  # the rest of the first text of a list that begins so
            texts = [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
            found = next((one.removeprefix(argument) for one in texts if one.startswith(argument)), MISSING)
        case "stems":  # what stands before the suffix in the names of fields, in all items of a list
            names = [one for item in node.items() if isinstance(item.value, dict) for one in item.value]
            found = list(dict.fromkeys(one.removesuffix(argument) for one in names if one.endswith(argument)))
        case "without":
            found = {key: one for key, one in value.items() if key not in argument.split()}
        case "given" | "arguments":  # a mapping without nulls; as `` (name=value, …)``, empty without any
            given = {key: one for key, one in value.items() if one is not None} if isinstance(value, dict) else {}
            listed = ", ".join(f"{key}={one}" for key, one in given.items())
            found = given if name == "given" else f" ({listed})" * bool(listed)
        case "asked":  # the messages without the assistant's answer at their end
            last = value[-1] if isinstance(value, list) and value else None
            answered = isinstance(last, dict) and last.get("role") == "assistant"
            found = (value[:-1] if answered else value) or MISSING
        case _:  # sections: an answer, which is a text or a list of sections with a title and a text
            parts = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]
            joined = "\n\n".join(f"## {one.get('title') or ''}\n\n{one.get('text') or ''}" for one in parts).strip()
            found = value if isinstance(value, str) else joined
    return found


def _texts(let: Any) -> dict[str, str]:
    return {name: str(text) for name, text in let.items()} if isinstance(let, dict) else {}


@lru_cache(maxsize=10_000)
def _parsed(text: str) -> tuple[tuple[str, tuple[tuple[str, str], ...], bool], ...]:
    """Return the alternatives of an expression: source, functions with arguments, and whether it may be missing."""
    parsed = []
    for alternative in _ALTERNATIVE.split(text):
        source, *pipes = _PIPE.split(alternative)
        calls = (pipe.partition(" ") for pipe in pipes)
        parsed.append((source.strip(), tuple((name, rest.strip()) for name, _, rest in calls), "?" in alternative))
    return tuple(parsed)


def _literal(text: str) -> Node:
    try:
        return Node(json.loads(text[1:]))
    except ValueError:
        return Node(text[1:])


class _Builder:
    """Builds one record of the native format, with the ``origins`` of its fields."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.origins: dict[FieldPath, FieldPath] = {}

    def records(self, spec: dict[str, Any]) -> Iterator[Record]:
        scope, entry = self.scope, self.scope.entry
        scope.names = {**_texts(spec.get("let")), **scope.names}
        data = self._fields({name: value for name, value in spec.items() if name not in _CONTROL}, scope, ())
        if isinstance(criteria := data.get("criteria"), list):
            self._set_keys(criteria)
        if isinstance(data.get("prompt"), str):
            self.origins[("prompt", 0)] = self.origins.get(("prompt",), ())
        location = replace(entry.location, origins=self.origins)
        yield from native.read(replace(entry, data=data, location=location), mapped=True)

    def _set_keys(self, criteria: list[Any]) -> None:
        """Set the keys: repeated ones are numbered, missing ones named by place; literal keys stay as they are."""
        keyed = [(n, one) for n, one in enumerate(criteria) if isinstance(one, dict)]
        texts = {n: one.get("key", "") for n, one in keyed if isinstance(one.get("key", ""), str)}
        ordered = sorted(texts, key=lambda n: bool(texts[n]) and ("criteria", n, "key") in self.origins)
        keys = native.keys_of([texts[n] or f"c{n + 1}" for n in ordered])
        for n, key in zip(ordered, keys, strict=True):
            criteria[n]["key"] = key

    def _fields(self, spec: dict[str, Any], scope: Scope, at: FieldPath) -> dict[str, Any]:
        built = ((name, self._build(part, scope, (*at, name))) for name, part in spec.items())
        return {name: value for name, value in built if value is not MISSING}

    def _build(self, spec: Any, scope: Scope, at: FieldPath) -> Any:
        if isinstance(spec, str):
            node = scope.evaluate(spec)
            if node.path is not None:
                self.origins[at] = node.path
            return node.value
        if isinstance(spec, list | tuple):
            return self._joined(spec, scope, at)
        if isinstance(spec, dict):
            return self._each(spec, scope, at, 0) if "each" in spec else self._part(spec, scope, at)
        return spec

    def _part(self, spec: dict[str, Any], scope: Scope, at: FieldPath) -> Any:
        if not scope.admits(spec):
            return self._build(spec["else"], scope, at) if "else" in spec else MISSING
        if "then" in spec:
            return self._build(spec["then"], scope, at)
        return self._fields({name: part for name, part in spec.items() if name not in _CONTROL}, scope, at)

    def _each(self, spec: dict[str, Any], scope: Scope, at: FieldPath, start: int) -> Any:
        node = scope.evaluate(spec["each"])
        if node.path is not None:
            self.origins.setdefault(at, node.path)
        if node.value is MISSING:
            return MISSING
        inner = {name: part for name, part in spec.items() if name not in ("each", "beside", "as", "let")}
        built: list[Any] = []
        for one in scope.loop(spec):
            place = (*at, start + len(built))
            if one.item.path is not None:
                self.origins[place] = one.item.path
            if (value := self._build(inner, one, place)) is not MISSING:
                built.append(value)
        return built

    def _joined(self, parts: Any, scope: Scope, at: FieldPath) -> Any:
        joined: list[Any] = []
        for part in parts:
            place = (*at, len(joined))
            if isinstance(part, dict) and "each" in part:
                made = self._each(part, scope, at, len(joined))
                joined += made if made is not MISSING else []
                continue
            value = self._build(part, scope, place)
            if isinstance(value, list) and isinstance(part, str):
                path = self.origins.pop(place, ())
                self.origins |= {(*at, len(joined) + n): (*path, n) for n in range(len(value))}
                joined += value
            elif value is not MISSING:
                joined.append(value)
        return joined if joined or at == ("criteria",) else MISSING


def _grouped(file: InputFile, rows: Rows) -> Iterator[Entry]:
    """Yield an entry for each record whose fields are spread over rows of CSV; errors have the line of their row.

    A single quote before what a spreadsheet would take for a formula is removed, but not before a hyphen, with which
    texts may begin.
    """

    def restored(entry: Entry) -> Iterator[Entry]:
        if not isinstance(entry.data, dict):
            entry.expected("dict_type", "a row with columns", entry.data)
            return
        for name, cell in entry.data.items():
            if isinstance(cell, str) and cell.startswith("'") and cell[1:2] != "-" and FORMULA.match(cell):
                entry.data[name] = cell[1:]
        yield entry

    groups: dict[Any, list[Entry]] = {}
    key: tuple[Any, ...] = ()
    count = 0
    for row in file.parse(restored):
        values = tuple(row.data.get(name) for name in rows.by)
        if not rows.fill:
            key = values
        elif not key or (values != (None,) * len(values) and values != key[:-1]):
            key, count = (*values, count), count + 1
        group = groups.setdefault(key, [])
        if len(group) >= input_file.MAX_CRITERIA:
            message = f"is one more row than the {input_file.MAX_CRITERIA} criteria that a rubric may have"
            raise file_error(row.location, "too_long", message, "split the rubric: give its rows names")
        group.append(row)
    for number, group in enumerate(groups.values(), start=1):
        root: FieldPath = (rows.under,) if rows.under else ()
        lines = {(*root, place): (row.location.line or 1, 1) for place, row in enumerate(group)}
        data: Any = [row.data for row in group]
        yield Entry(
            {rows.under: data} if rows.under else data,
            replace(group[0].location, positions=lines),
            file.path.stem if number == 1 else f"{file.path.stem}-{number}",
            number,
            is_csv=True,
        )


@dataclass(frozen=True)
class Format:
    """A format that is read by code: ``read`` yields the valid records of a file, and adds the errors to its errors.

    A record with all fields of one of the lists in ``fields`` has this format.
    """

    read: Callable[[InputFile], Iterator[Record]]
    fields: tuple[str, ...] = ()
    matches: Callable[[Any], bool] | None = None

    def identifies(self, first: Any) -> bool:
        """Return whether a file with this first record has this format."""
        given = set(first) if isinstance(first, dict) else set()
        known = any(given.issuperset(names.split()) for names in self.fields)
        return known or (self.matches is not None and self.matches(first))


_BENCH = ("criterions dimension_weight", "topic language prompt", "article prompt")
_OPENAI = ("item grader", "testing_criteria", "reinforcement type", "type input", "type source", "type graders")
FORMATS: Names[str, Format | Reader] = {
    "native": Format(partial(InputFile.parse, parse=native.read), ("prompt completions",), native.matches),
    "openai_grader": Format(partial(InputFile.parse, parse=openai_grader.read), _OPENAI),
    "paperbench": Format(partial(InputFile.parse, parse=dialects.read_paperbench), ("requirements weight sub_tasks",)),
    "deep_research_bench": Format(dialects.read_deep_research_bench, _BENCH),
    "deep_research_bench_en": Format(partial(dialects.read_deep_research_bench, language="en")),
    "deep_research_bench_zh": Format(partial(dialects.read_deep_research_bench, language="zh")),
    **{path.stem: Reader(path) for path in sorted(FOLDER.glob("*.yaml"))},
}
