"""Formats of other projects as data: a mapping file says how their records become records of the native format.

`docs/formats.md` describes the language: a text is the path of a field (``reward_model.rubrics``), ``=text`` a literal,
``"healthbench-{prompt_id}"`` a template; ``a? || b`` takes the first that is there, and ``a | name`` applies a function
of `rubricsvc.formats.functions`. Every value keeps the path that it was made of, so that errors name it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Mapping as Names
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue

from rubricsvc.core.base import Value
from rubricsvc.core.validation_messages import FieldPath, closest, unknown_field
from rubricsvc.formats import functions, native, openai_grader, trees
from rubricsvc.formats.containers import restored_row
from rubricsvc.formats.errors import InvalidFileError, Location
from rubricsvc.formats.input_file import InputFile, append_row
from rubricsvc.formats.record import MISSING, Entry, Node, Record

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
        if base not in builtin_names():
            entry.add("not_found", f"unknown format {base!r}; {closest(base, builtin_names())}", ("extends",))
            return
        inherited = builtin(base).model_dump(mode="json", exclude={"detect", "extends", "about"})
        data = {**inherited, **data, "record": {**inherited["record"], **data.get("record", {})}}
    mapping = entry.build(Mapping, data)
    for path, text in _expressions(mapping):
        for name, argument in _functions_in(text):
            if name not in functions.FUNCTIONS:
                entry.add("invalid", f"unknown function {name!r}; {closest(name, functions.FUNCTIONS)}", path)
            elif name == "lookup" and argument.removesuffix("?") not in mapping.tables:
                entry.add("invalid", f"unknown table {argument!r}; {closest(argument, mapping.tables)}", path)
            elif name == "match" and argument.removesuffix("?") not in mapping.patterns:
                entry.add("invalid", f"unknown pattern {argument!r}; {closest(argument, mapping.patterns)}", path)
    parts: list[tuple[FieldPath, dict[str, Any]]] = [(("record",), mapping.record)]
    for path, fields in parts + [(("records", n), one) for n, one in enumerate(mapping.records)]:
        for name in fields.keys() - set(_RECORD):
            entry.add("extra_forbidden", unknown_field(name, _RECORD), (*path, name))
    if mapping.prepare is not None and mapping.prepare not in functions.PREPARATIONS:
        entry.add("invalid", f"unknown preparation; {closest(mapping.prepare, functions.PREPARATIONS)}", ("prepare",))
    if not entry.errors:
        yield mapping


def _expressions(mapping: Mapping) -> Iterator[tuple[FieldPath, str]]:
    def walk(value: Any, path: FieldPath) -> Iterator[tuple[FieldPath, str]]:
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, dict | list | tuple):
            for step, item in value.items() if isinstance(value, dict) else enumerate(value):
                yield from walk(item, (*path, step))

    for name in ("let", "record", "records"):
        yield from walk(getattr(mapping, name), (name,))


def _functions_in(text: str) -> Iterator[tuple[str, str]]:
    if not text.startswith("="):
        for source, calls, _ in _parsed(text):
            for slot in _SLOT.findall(source):
                yield from _functions_in(slot)
            yield from calls


def builtin_names() -> list[str]:
    """Return the names of the formats that are mapping files of this package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@cache
def builtin(name: str) -> Mapping:
    """Return a mapping of this package."""
    return load_mapping(FOLDER / f"{name}.yaml")


@dataclass
class Reader:
    """Reads files by a mapping. ``counts`` has how often the function ``nth`` saw each value of a file."""

    mapping: Mapping
    counts: Counter[str] = field(default_factory=Counter)

    def read(self, file: InputFile) -> Iterator[Record]:
        """Yield the records of the file's valid entries; errors are added to ``file.errors``."""
        self.counts.clear()
        entries: Iterator[Entry] | None = None
        if self.mapping.rows is not None:
            entries = _grouped(file, self.mapping.rows)
        elif (gather := functions.GATHERERS.get(self.mapping.prepare or "")) is not None:
            entries = gather(file)
        yield from file.parse(self.records, entries)

    def identifies(self, first: Any) -> bool:
        """Return whether a file with this first record has the format, by the mapping's ``detect``."""
        if not isinstance(first, dict | list):
            return False
        if self.mapping.detector is not None:
            return functions.DETECTORS[self.mapping.detector](first)
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
        self._check_allowed(entry)
        prepare = functions.PREPARATIONS.get(self.mapping.prepare or "")
        known = len(entry.errors)
        prepared = list(prepare(entry)) if prepare else [entry.data]
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

    def _check_allowed(self, entry: Entry) -> None:
        """Add an error for each field that is not allowed, once for all items of a list."""
        scope, unknown = Scope.of(self, entry, entry.data), set[str]()
        for path, names in self.mapping.allowed.items():
            node = scope.find(path) if path else scope.root
            items = node.items() if isinstance(node.value, list) else [node]
            for item in items:
                for name in item.value if isinstance(item.value, dict) else ():
                    if name not in names and name not in unknown:
                        unknown.add(name)
                        entry.add("extra_forbidden", unknown_field(name, names), (*(item.path or ()), name))


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

    @cached_property
    def mapping(self) -> Mapping:
        """The mapping that is read by."""
        return self.reader.mapping

    def find(self, path: str) -> Node:
        """Return the value at a path; MISSING, with the path where it would be."""
        for name in _VARIABLE.findall(path):
            value = self.find(name).value
            path = path.replace(f"<{name}>", "\0" if value is MISSING else str(value).replace(".", "\1"))
        if path == ".":
            return self.item
        head, *rest = path.split(".")
        if head in self.names:
            node = self._named(head)
        elif head == "$":
            node = self.root
        else:
            node, rest = self.item, [head, *rest] if head else rest
        for step in rest:
            node = self._step(node, step.replace("\1", "."))
        return node

    def _named(self, name: str) -> Node:
        named = self.names[name]
        if isinstance(named, str):
            self.names[name] = Node(MISSING)  # a name that refers to itself
            named = self.names[name] = self.evaluate(named)
        return named

    def _step(self, node: Node, step: str) -> Node:
        if isinstance(node.value, dict):
            return Node.at(node.value.get(step, MISSING), (*(node.path or ()), step))
        if isinstance(node.value, list) and step.isdecimal():
            place = int(step)
            return Node.at(node.value[place] if place < len(node.value) else MISSING, (*(node.path or ()), place))
        if node.value is not MISSING:
            self.entry.expected("dict_type", "a mapping", node.value, node.path or ())
        return Node(MISSING, (*(node.path or ()), step))

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
                    made = functions.FUNCTIONS[name](self, node, argument)
                    node = made if isinstance(made, Node) else Node(made, node.path)
            if node.value is not MISSING:
                return node
        if required and not alternatives[-1][2] and len(self.entry.errors) == known:
            self.entry.add("missing", "is missing", node.path or ())
        return node

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
            names = {**self.names, "$i": Node(place), "$n": Node(place + 1)}
            if keys is not None:
                names["$key"] = Node(keys[place])
            if others:
                names["$beside"] = others[place]
            if "as" in spec:
                names[spec["as"]] = child
            names |= _texts(spec.get("let"))
            yield Scope(self.reader, self.entry, self.root, child, names)


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
        made = replace(entry, data=data, location=location, is_csv=False)
        yield from native.read_mapped(made, text_only=entry.is_csv)

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
    """Yield an entry for each record whose fields are spread over rows of CSV; errors have the line of their row."""
    groups: dict[Any, list[Entry]] = {}
    key: tuple[Any, ...] = ()
    count = 0
    for row in file.parse(_row):
        values = tuple(row.data.get(name) for name in rows.by)
        if not rows.fill:
            key = values
        elif not key or (values != (None,) * len(values) and values != key[:-1]):
            key, count = (*values, count), count + 1
        append_row(groups.setdefault(key, []), row)
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


def _row(entry: Entry) -> Iterator[Entry]:
    if isinstance(entry.data, dict):
        entry.data = restored_row(entry.data)
        yield entry
    else:
        entry.expected("dict_type", "a row with columns", entry.data)


@dataclass(frozen=True)
class Format:
    """How a format is read: ``read`` yields the valid records of a file, and adds the errors to ``file.errors``.

    A record with all fields of one of the lists in ``fields`` has this format.
    """

    read: Callable[[InputFile], Iterator[Record]]
    fields: tuple[str, ...] = ()
    matches: Callable[[Any], bool] = lambda _: False

    def identifies(self, first: Any) -> bool:
        """Return whether a file with this first record has this format."""
        given = set(first) if isinstance(first, dict) else set()
        return any(given.issuperset(names.split()) for names in self.fields) or self.matches(first)


def _by_entry(read: Callable[[Entry], Iterator[Record]]) -> Callable[[InputFile], Iterator[Record]]:
    return lambda file: file.parse(read)


_BENCH = ("criterions dimension_weight", "topic language prompt", "article prompt")
_OPENAI = ("item grader", "testing_criteria", "reinforcement type", "type input", "type source", "type graders")
_CODE = {
    "native": Format(_by_entry(native.read), ("prompt completions",), native.matches),
    "openai_grader": Format(_by_entry(openai_grader.read), _OPENAI),
    "paperbench": Format(_by_entry(trees.read_paperbench), ("requirements weight sub_tasks",)),
    "deep_research_bench": Format(trees.read_deep_research_bench, _BENCH),
    "deep_research_bench_en": Format(partial(trees.read_deep_research_bench, language="en")),
    "deep_research_bench_zh": Format(partial(trees.read_deep_research_bench, language="zh")),
}


class _Formats(Names[str, Format | Reader]):
    """All formats; a mapping file is read when its format is first used."""

    def __init__(self) -> None:
        self._names = list(dict.fromkeys([*_CODE, *builtin_names()]))

    def __getitem__(self, name: str) -> Format | Reader:
        if name not in self._names:
            raise KeyError(name)
        return _CODE[name] if name in _CODE else Reader(builtin(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


FORMATS = _Formats()
