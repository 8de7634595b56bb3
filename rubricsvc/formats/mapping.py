"""Formats of other projects as data: a mapping file says how their records become records of the native format.

`docs/formats.md` describes the language: a text is the path of a field (``reward_model.rubrics``), ``=text`` a literal,
``"healthbench-{prompt_id}"`` a template; ``a? || b`` takes the first that is there, and ``a | name`` applies a function
(`Scope.call`). Every value keeps the path that it was made of, so that errors name it.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from rubricsvc.core import strict_json
from rubricsvc.core.base import MAX_NAME_LENGTH, UnitInterval, Value
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.rubric import Criterion, Group, Rubric
from rubricsvc.core.validation_messages import FieldPath, closest
from rubricsvc.core.verdict import Label
from rubricsvc.formats import openai_grader
from rubricsvc.formats.input_file import InputFile, read_yaml
from rubricsvc.formats.record import (
    FIELDS,
    MAX_CRITERIA,
    MISSING,
    Entry,
    InvalidFileError,
    Location,
    Node,
    Placed,
    Record,
    file_error,
    keys_of,
    read,
    rubric_name,
)

FOLDER = Path(__file__).parent / "mappings"
_OUTSIDE = r"(?![^{}]*\})"
_ALTERNATIVE, _PIPE = re.compile(r"\s*\|\|\s*" + _OUTSIDE), re.compile(r"\s*(?<!\|)\|(?!\|)\s*" + _OUTSIDE)
_SLOT, _VARIABLE = re.compile(r"\{([^{}]+)\}"), re.compile(r"<([^<>]+)>")
_PLACEHOLDER, _FILE = re.compile(r"\{\{\s*(\w+)\s*\}\}"), re.compile(r"\S+\.(txt|md|json|ya?ml|j2|csv|py|js|ts)")
_CHAT = re.compile(r"""\s*(\[\s*\{\s*["']?role["']?\s*:|-\s+role:)""")
_CONTROL = ("each", "beside", "as", "let", "if", "has", "then", "else", "ignored")


class Rows(Value):
    """How records of a file become one: those with the same values of the columns ``by``.

    An empty one has the value above, as in merged cells, unless another one differs, and then those of ``more`` have,
    too. With ``parts`` only records with one of these fields are joined, not those of JSONL. ``under`` has the rows.
    """

    by: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    under: str | None = None


class Mapping(Value):
    """A mapping file. With ``code`` one of the functions of `CODE` reads the format; ``hint`` is that of errors."""

    about: str = ""
    hint: str = ""
    code: str | None = None
    extends: str | None = None
    detect: tuple[str, ...] = ()
    allowed: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    rows: Rows | None = None
    tables: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    patterns: dict[str, str] = Field(default_factory=dict)
    let: dict[str, JsonValue] = Field(default_factory=dict)
    record: dict[str, JsonValue]
    records: tuple[dict[str, JsonValue], ...] = ({},)


def _read_mapping(entry: Entry) -> Iterator[Mapping]:
    """Yield the mapping; what it names and what does not exist is added to the entry."""
    data = entry.data
    if isinstance(data, dict) and isinstance(base := data.get("extends"), str):
        known = FORMATS.get(base)
        if known is None or known.mapping.code:
            entry.add("not_found", f"unknown format {base!r}; {closest(base, FORMATS)}", ("extends",))
            return
        inherited = known.mapping.model_dump(mode="json", exclude={"detect", "extends", "about"})
        data = {**inherited, **data, "record": {**inherited["record"], **data.get("record", {})}}
    mapping = entry.build(Mapping, data)
    for name, pattern in mapping.patterns.items():
        try:
            re.compile(pattern)
        except re.error as error:
            entry.add("value_error", f"not a regular expression: {error}", ("patterns", name))
    parts: list[tuple[FieldPath, Any]] = [((name,), getattr(mapping, name)) for name in ("let", "record", "records")]
    for path, part in parts:  # which grows
        if isinstance(part, dict | list | tuple):
            inner = part.items() if isinstance(part, dict) else enumerate(part)
            parts += (((*path, step), item) for step, item in inner)
        elif isinstance(part, str) and not part.startswith("="):
            for source, pipes, _ in _parsed(part):
                parts += ((path, slot) for slot in _SLOT.findall(source))
                for name, argument in pipes:
                    names = [*(mapping.tables if name == "lookup" else mapping.patterns)]
                    wanted = argument.removesuffix("?")
                    if name not in FUNCTIONS:
                        entry.add("invalid", f"unknown function {name!r}; {closest(name, FUNCTIONS)}", path)
                    elif name in ("lookup", "match") and wanted not in names:
                        what = "table" if name == "lookup" else "pattern"
                        entry.add("invalid", f"unknown {what} {wanted!r}; {closest(wanted, names)}", path)
    variants = {("records", n): one for n, one in enumerate(mapping.records)}
    for path, fields in ({("record",): mapping.record} | variants).items():
        for name in fields.keys() - {*FIELDS, *_CONTROL}:
            entry.add("extra_forbidden", f"unknown field; {closest(name, FIELDS)}", (*path, name))
    if mapping.code is not None and mapping.code not in CODE:
        entry.add("invalid", f"unknown function {mapping.code!r}; {closest(mapping.code, CODE)}", ("code",))
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
        file = InputFile(self.path)
        mappings = list(file.parse(_read_mapping))
        file.errors.raise_if_any("docs/formats.md describes mapping files")
        return mappings[0]

    def read(self, file: InputFile) -> Iterator[Record]:
        """Yield the records of the file's valid entries; errors are added to ``file.errors``."""
        self.counts.clear()
        entries = _grouped(file, self.mapping.rows) if self.mapping.rows is not None else None
        yield from file.parse(CODE[self.mapping.code] if self.mapping.code else self._records, entries)

    def identifies(self, first: Any) -> bool:
        """Return whether a file with this first record has the format, by the mapping's ``detect``."""
        scope = Scope.of(self, Entry(first, Location("")))
        return isinstance(first, dict | list) and any(
            all((scope.find(name.removeprefix("!")).value is MISSING) == name.startswith("!") for name in names)
            for names in (re.split(r",\s*", fields) for fields in self.mapping.detect)
        )

    def _records(self, entry: Entry) -> Iterator[Record]:
        """Yield the records of an entry; what is wrong with it is added to the entry."""
        if not isinstance(entry.data, dict | list):
            entry.expected("dict_type", "a mapping", entry.data)
            return
        scope, unknown = Scope.of(self, entry), set[str]()
        for path, names in self.mapping.allowed.items():  # once for all items of a list
            for item in scope.find(path).items():
                for key in item.value if isinstance(item.value, dict) else ():
                    if key not in names and key not in unknown:
                        unknown.add(key)
                        entry.unknown(key, names, item.path or ())
        if entry.errors:
            return
        for fields in self.mapping.records:
            root, spec = Scope.of(self, entry), {**self.mapping.record, **fields}
            for scope in root.loop(spec, root.evaluate(str(spec["each"]))) if "each" in spec else [root]:
                if scope.admits(spec):
                    yield from scope.records(spec)


@dataclass
class Scope:
    """What paths refer to: fields of the ``item``, of the ``root`` (``$.``), and ``names``.

    ``origins`` has the paths in the file that the fields of the record that is made are from.
    """

    reader: Reader
    entry: Entry
    root: Node
    item: Node
    names: dict[str, Node | str]
    origins: dict[FieldPath, FieldPath] = field(default_factory=dict)

    @classmethod
    def of(cls, reader: Reader, entry: Entry) -> "Scope":
        """Return the scope of a whole record."""
        root = Node.at(entry.data, ())
        file = Node(Path(entry.location.file).stem)
        names: dict[str, Node | str] = {"$name": Node(entry.name), "$number": Node(entry.number), "$file": file}
        names |= {name: str(text) for name, text in reader.mapping.let.items()}
        return cls(reader, entry, root, root, names)

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
            return self._source(text)
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
        value, path, mapping, entry = node.value, node.path or (), self.reader.mapping, self.entry
        found: Any = MISSING
        match name:
            case "lookup":  # whatever its case; with ``?`` it may be missing
                values = mapping.tables[argument.removesuffix("?")]
                known = {key.casefold(): one for key, one in values.items()}
                found = known.get(str(value).strip().casefold(), MISSING)
                if found is MISSING and not argument.endswith("?"):
                    entry.expected("literal_error", f"one of {', '.join(values)}", value, path)
            case "match":  # the named groups of a regular expression that the whole text matches
                pattern = mapping.patterns[argument.removesuffix("?")]
                groups = re.fullmatch(pattern, value, re.DOTALL) if isinstance(value, str) else None
                if groups is not None:
                    found = Placed({key: text for key, text in groups.groupdict().items() if text is not None}, path)
                elif not argument.endswith("?"):
                    entry.expected("shape", f"a text that matches {pattern!r}", value, path)
            case "json":  # in a text, or in a list with one; with ``?`` other texts stay, also numbers and booleans
                text = value[0] if isinstance(value, list) and len(value) == 1 else value
                try:
                    found = json.loads(text) if isinstance(text, str) else text
                    found = text if argument == "?" and isinstance(found, int | float) else found
                except (ValueError, RecursionError):
                    found = text if argument == "?" else found
                    if argument != "?":
                        entry.expected("json_invalid", "JSON", text, path)
            case "text":
                found = value if isinstance(value, str) and value else MISSING
                if found is MISSING:
                    entry.expected("string_type", "a text", value, path)
            case "number":  # in a cell of CSV
                try:  # also 2,5 and the minus of typography, but not 1,000
                    found = float(re.sub(r"^(-?\d+),(\d\d?)$", r"\1.\2", str(value).strip().replace("−", "-")))
                except ValueError:
                    entry.expected("shape", "a number such as 3 or -0.5", value, path)
            case "nth":  # -2 if the file had this text once before, and so on
                self.reader.counts[value] += 1
                times = self.reader.counts[value]
                found = f"-{times}" if times > 1 else ""
            case "filled":  # {{ name }} by the texts of the mappings that the argument names, of the first that has it
                found = _filled(entry, node, [self.find(one) for one in argument.split()])
            case "applicable":  # the label of an option; null for one that says that the criterion is not applicable
                options = [one.value for one in self.find(f"{argument}.options").items()]
                absent = [one.get("label") for one in options if isinstance(one, dict) and one.get("na")]
                found = Node(None) if value in absent else node
            case "verl":
                found = _verl(entry, node)
            case "flattened":
                found = _flattened(entry, node)
            case _:
                found = _plain(name, node, argument)
        return found

    def _source(self, text: str) -> Node:
        if text.startswith("="):
            try:
                return Node(json.loads(text[1:]))
            except ValueError:
                return Node(text[1:])
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
        """Return whether the conditions of a part hold: ``if`` a value that counts, ``has`` one that is there."""
        holds = "has" not in spec or self.evaluate(spec["has"], required=False).value is not MISSING
        if not holds or "if" not in spec:
            return holds
        text = str(spec["if"])
        value = self.evaluate(text.removeprefix("!"), required=False).value
        return (value is not MISSING and bool(value)) != text.startswith("!")

    def loop(self, spec: dict[str, Any], node: Node) -> Iterator["Scope"]:
        """Yield a scope for each item of the list, or of the mapping, that a part with ``each`` is made for."""
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
            names |= {name: str(text) for name, text in spec.get("let", {}).items()}
            yield Scope(self.reader, self.entry, self.root, child, names, self.origins)

    def records(self, spec: dict[str, Any]) -> Iterator[Record]:
        """Yield the record of the native format that a mapping makes here."""
        self.origins = {}
        self.names = {**{name: str(text) for name, text in spec.get("let", {}).items()}, **self.names}
        data = self.build({name: value for name, value in spec.items() if name not in _CONTROL}, ())
        criteria = data.get("criteria")
        # repeated keys are numbered, missing ones named by place; literal keys stay as they are
        listed = enumerate(criteria if isinstance(criteria, list) else ())
        keys = ((n, one.get("key", "")) for n, one in listed if isinstance(one, dict))
        texts = {n: key for n, key in keys if isinstance(key, str)}
        ordered = sorted(texts, key=lambda n: bool(texts[n]) and ("criteria", n, "key") in self.origins)
        for n, key in zip(ordered, keys_of([texts[n] or f"c{n + 1}" for n in ordered]), strict=True):
            criteria[n]["key"] = key
        if isinstance(data.get("prompt"), str):
            self.origins[("prompt", 0)] = self.origins.get(("prompt",), ())
        location = replace(self.entry.location, origins=self.origins)
        yield from read(replace(self.entry, data=data, location=location), mapped=True)

    def build(self, spec: Any, at: FieldPath) -> Any:
        """Return the value of a part of the mapping, which is at a path of the record that is made."""
        if isinstance(spec, str):
            node = self.evaluate(spec)
            if node.path is not None:
                self.origins[at] = node.path
            return node.value
        if isinstance(spec, list | tuple):
            return self._joined(spec, at, []) or ([] if at == ("criteria",) else MISSING)
        if not isinstance(spec, dict):
            return spec
        if "each" in spec:
            return self._joined([spec], at, [])
        if "joined" in spec:
            texts = self.build(spec["joined"], at)
            return "".join(map(str, texts)) if isinstance(texts, list) else texts
        if not self.admits(spec):
            return self.build(spec["else"], at) if "else" in spec else MISSING
        if "ignored" in spec:
            note = self._source(spec["ignored"] if "{" in spec["ignored"] else f"={spec['ignored']}")
            self.entry.note("ignored", f"is not carried: {note.value}")
            return MISSING
        if "then" in spec:
            return self.build(spec["then"], at)
        built = ((name, self.build(part, (*at, name))) for name, part in spec.items() if name not in _CONTROL)
        return {name: value for name, value in built if value is not MISSING}

    def _joined(self, parts: Any, at: FieldPath, joined: list[Any]) -> Any:
        """Add the values of parts of a list; MISSING where the one list that is looped over is."""
        for part in parts:
            place = (*at, len(joined))
            if isinstance(part, dict) and "each" in part:
                node = self.evaluate(part["each"])
                if node.path is not None:
                    self.origins.setdefault(at, node.path)
                if node.value is MISSING and len(parts) == 1:
                    return joined or MISSING
                nested = part.get("then")
                inner = {name: one for name, one in part.items() if name not in ("each", "beside", "as", "let")}
                for one in self.loop(part, node):
                    if isinstance(nested, dict) and "each" in nested:
                        if one.admits(inner):
                            one._joined([nested], at, joined)
                        continue
                    place = (*at, len(joined))
                    if one.item.path is not None:
                        self.origins[place] = one.item.path
                    if (value := one.build(inner, place)) is not MISSING:
                        joined.append(value)
                continue
            value = self.build(part, place)
            if isinstance(value, list) and isinstance(part, str):
                path = self.origins.pop(place, ())
                self.origins |= {(*at, len(joined) + n): (*path, n) for n in range(len(value))}
                joined += value
            elif value is not MISSING:
                joined.append(value)
        return joined


FUNCTIONS = (
    *("lookup", "match", "json", "text", "number", "nth", "applicable", "verl", "filled", "negative", "spaced"),
    *("strip", "before", "split", "lines", "listed", "prefixed", "stems", "without", "given", "arguments"),
    *("asked", "sections", "sha256", "digest", "flattened", "flow"),
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
            found = [one.strip() for one in (text.split(argument) if argument else text.splitlines()) if one.strip()]
        case "lines":
            found = text.replace("\\n", "\n")
        case "listed":
            found = [Placed(value, node.path or ()) if isinstance(value, dict) else value]
            found = value if isinstance(value, list) else found
        case "flow":  # {poor: 0, good: 1}
            found = next(iter(_yaml_items(text)), value) if isinstance(value, str) and text[:1] == "{" else value
        case "negative":
            found = -abs(value) if isinstance(value, int | float) else value
        case "spaced":  # levels from worst to best, with values at equal distances
            given_items = value if isinstance(value, list) else []
            found = {str(one): place / max(len(given_items) - 1, 1) for place, one in enumerate(given_items)} or value
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


@lru_cache(maxsize=10_000)
def _parsed(text: str) -> tuple[tuple[str, tuple[tuple[str, str], ...], bool], ...]:
    """Return the alternatives of an expression: source, functions with arguments, and whether it may be missing."""
    parsed = []
    for alternative in _ALTERNATIVE.split(text):
        source, *pipes = _PIPE.split(alternative)
        calls = (pipe.partition(" ") for pipe in pipes)
        parsed.append((source.strip(), tuple((name, rest.strip()) for name, _, rest in calls), "?" in alternative))
    return tuple(parsed)


def _grouped(file: InputFile, rows: Rows) -> Iterator[Entry]:
    """Yield an entry for each record that is spread over rows, or parts, of a file; errors have the line of the row."""
    groups: dict[str, list[Entry]] = {}
    is_split = not rows.parts or file.path.suffix.lower() not in (".jsonl", ".ndjson", ".parquet")
    checked = file.parse(lambda entry: [replace(entry, data=entry.mapping(entry.data))])
    for row in file.filled_down(checked, rows.by, rows.more):
        if rows.parts and not (is_split and row.data.keys() & set(rows.parts) and "items" not in row.data):
            yield row
            continue
        group = groups.setdefault(repr([row.data.get(name) for name in rows.by]), [])
        if len(group) >= MAX_CRITERIA:
            message = f"is one more row than the {MAX_CRITERIA} criteria that a rubric may have"
            raise file_error(row.location, "too_long", message, "split the rubric: give its rows names")
        group.append(row)
    for number, group in enumerate(groups.values(), start=1):
        if rows.parts and len(group) == 1:
            yield group[0]
            continue
        root: FieldPath = (rows.under,) if rows.under else ()
        lines = {(*root, place): (row.location.line or 1, 1) for place, row in enumerate(group)}
        data: Any = [row.data for row in group]
        data = {rows.under: data} if rows.under else data
        location = replace(group[0].location, positions=lines, root=())
        name = file.path.stem if number == 1 else f"{file.path.stem}-{number}"
        yield replace(group[0], data=data, location=location, name=name, number=number)


class _Task(BaseModel):
    """A node of PaperBench. Unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    id: Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH)]
    requirements: Annotated[str, Field(min_length=1)]
    weight: Annotated[float, Field(ge=0, le=1e9)]
    sub_tasks: tuple["_Task", ...]
    task_category: str | None = None
    finegrained_task_category: str | None = None
    score: UnitInterval | None = None
    valid_score: bool | float | None = None  # the human grades have true and 1.0
    explanation: str | None = None


def _read_paperbench(entry: Entry) -> Iterator[Record]:
    """Yield the record of a tree."""
    nodes: list[tuple[_Task, FieldPath]] = []
    pending: list[tuple[_Task, FieldPath]] = [(entry.build(_Task, entry.data), ())]
    while pending:  # in the order of the file
        node, path = pending.pop()
        nodes.append((node, path))
        pending += [(child, (*path, "sub_tasks", n)) for n, child in reversed(list(enumerate(node.sub_tasks)))]
    key_at = dict(zip((path for _, path in nodes), keys_of([node.id for node, _ in nodes]), strict=True))
    graded = any(node.score is not None for node, _ in nodes)
    criteria, groups, labels = [], [], []
    for node, path in nodes:
        key = key_at[path]
        above = tuple(key_at[path[:depth]] for depth in range(0, len(path), 2))
        if node.sub_tasks:
            weight = node.weight if above else 1.0  # the root has no sibling; 1 keeps its score exact
            groups.append(Group(path=(*above, key), weight=weight, text=node.requirements))
            continue
        tags = tuple(tag for tag in (node.task_category, node.finegrained_task_category) if tag)
        criteria.append(Criterion(key=key, text=node.requirements, weight=node.weight, group=above, tags=tags))
        if node.score is not None:
            value = None if node.valid_score in (False, 0) else node.score  # the benchmark counts an invalid one as 0
            labels.append(Label(criterion=key, annotator="person 1", value=value, note=node.explanation))
        elif graded:
            entry.add("missing", "is missing, though other nodes have one", (*path, "score"))
    rubric = Rubric(criteria=tuple(criteria), groups=tuple(groups), formula="tree")
    yield Record(None, rubric, (), tuple(labels), name=rubric_name(f"paperbench-{entry.name}"), location=entry.location)


def _yaml_items(text: str) -> list[Any]:
    """Return the items of a list in YAML, or the mapping that a text is; nothing of a text with errors."""
    with suppress(InvalidFileError):
        items = list(read_yaml(text, ""))
        return [] if any(errors for *_, errors in items) else [data for data, *_ in items]
    return []


def _filled(entry: Entry, node: Node, mappings: list[Node]) -> Any:
    """Return a text with each ``{{ name }}`` filled; a file, a list, and a template of other form are errors.

    Of chat messages, which are a text in JSON or YAML, each text is filled.
    """
    if isinstance(node.value, str) and _CHAT.match(node.value):
        messages = _yaml_items(node.value)
        if not messages or not all(isinstance(one, dict) for one in messages):
            entry.expected("shape", "chat messages in JSON or YAML", node.value, node.path or ())
            return []
        return [{key: _filled(entry, Node(text, node.path), mappings) for key, text in one.items()} for one in messages]
    texts: dict[str, Any] = {}
    for one in reversed([one for one in mappings if one.value is not MISSING]):
        if not isinstance(one.value, dict):
            entry.expected("dict_type", "a mapping", one.value, one.path or ())
        texts |= one.value if isinstance(one.value, dict) else {}
    template = str(node.value)
    used = [node.value, *(texts[name] for name in _PLACEHOLDER.findall(template) if name in texts)]
    found = _PLACEHOLDER.sub(lambda slot: str(texts.get(slot[1], slot[0])), template)
    wrong = [one for one in used if not isinstance(one, str | int | float) or str(one).startswith("file://")]
    if wrong or _FILE.fullmatch(template) or re.search(r"\{[{%]", found):
        what = "a text: paste files, write out lists and filters"
        entry.expected("shape", what, (wrong or [found])[0], node.path or ())
    return found


def _verl(entry: Entry, node: Node) -> Any:
    """Return ``key``, ``check`` and ``others`` of the tags of a criterion of verl: a mapping, or texts like ``key:c1``.

    A judge decides what a rule of verl decides.
    """
    value, path, named, others = node.value, node.path or (), dict[str, Any](), list[str]()
    rule = ("verifier", "function", "parameters")
    if isinstance(value, dict):
        named = {name: one for name, one in value.items() if one is not None}
        tags = named.pop("tags", [])
        others = [str(one) for one in tags] if isinstance(tags, list) else []
    elif not isinstance(value, list):
        entry.expected("list_type", "a mapping, or a list of key:value", value, path)
    for text in value if isinstance(value, list) else ():
        name, _, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
        if name in (*rule, "key", "check"):
            named[name] = rest
        elif isinstance(text, str):
            others.append(text)
    key, check = named.pop("key", None), named.pop("check", None)
    if named.get("verifier") == "llm":
        named = {name: one for name, one in named.items() if name not in rule}
    elif "verifier" in named:
        entry.add("rule", "a judge decides it, not the rule; write a check instead (docs/checks.md)", path, note=True)
    texts = [f"{name}:{one if isinstance(one, str) else strict_json.dump(one)}" for name, one in named.items()]
    check = strict_json.json_of(check) if isinstance(check, str) else check
    made = Placed(check, path) if isinstance(check, dict) else None
    return Placed({"key": key and str(key), "others": texts + others, "check": made}, path)


def _flattened(entry: Entry, node: Node) -> Any:
    """Return the criteria of AutoRubric's rubrics in one list, each with its section as ``group``, and guidelines.

    A rubric is a list of criteria and sections, a mapping with such a list, or one criterion.
    """
    data, path, guidelines = node.value, node.path or (), None
    while isinstance(data, dict) and "requirement" not in data:
        guidelines = guidelines or data.get("guidelines")
        name = next((one for one in ("rubric", "sections", "criteria") if data.get(one) is not None), "criteria")
        path, data = (*path, name), data.get(name)
    shared = {"guidelines": guidelines} if guidelines else {}
    if isinstance(data, dict):
        return [Placed({**data, **shared, "group": []}, path)]
    if not isinstance(data, list) or not data:
        entry.expected("list_type", "a list of criteria or sections", data, path)
        return MISSING
    flat: list[Any] = []
    for place, item in enumerate(data):
        inner = item.get("criteria") if isinstance(item, dict) else None
        title = str(item.get("name") or item.get("title") or "") if isinstance(inner, list) else ""
        for number, one in enumerate(inner if isinstance(inner, list) else [item]):
            where = (*path, place, "criteria", number) if isinstance(inner, list) else (*path, place)
            if isinstance(one, dict):
                flat.append(Placed({**one, **shared, "group": [title] if title else []}, where))
            else:
                entry.expected("model_type", "a criterion", one, where)
    return flat


CODE: dict[str, Callable[[Entry], Iterator[Record]]] = {
    "native": read,
    "openai_grader": openai_grader.read,
    "paperbench": _read_paperbench,
}
"""What reads formats whose mapping files only say how they are recognized."""
FORMATS = {
    path.stem: Reader(path) for path in sorted(FOLDER.glob("*.yaml"), key=lambda one: (one.stem not in CODE, one))
}
