"""YAML 1.2 (core schema): records as plain data with the position of every field, and the same written back.

PyYAML's C parser builds the node tree, and this module turns nodes into data: PyYAML's own constructor speaks YAML 1.1,
keeps the last of duplicate keys, and forgets positions. docs/adr/0015 says why it is not ruamel.yaml.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, ClassVar, TextIO

import yaml

from rubricsvc.core.strict_json import JsonError, check_storable
from rubricsvc.core.validation_messages import FieldPath
from rubricsvc.formats.containers import Document
from rubricsvc.formats.errors import FieldError, Location, file_error, too_many_values

MAX_DEPTH = 60
MAX_ALIASED = 100_000
"""Values that aliases may add to a document, counted as if they were written out."""

_PREFIX = "tag:yaml.org,2002:"
_SCALARS = {
    "null": re.compile(r"~|null|Null|NULL|"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "int": re.compile(r"[-+]?[0-9]+"),
    "float": re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
}
_VALUES: dict[str, Callable[[str], Any]] = {
    "null": lambda _: None,
    "bool": lambda text: text.lower() == "true",
    "int": lambda text: int(text) if len(text) < 1000 else math.inf,  # more digits cannot be stored either
    "float": lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
}
_HINT = "quote a value that holds ': ' or ' #' or begins with one of [{&*!|>'\"%@`; indent with spaces"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the base is chosen at run time
    yaml_implicit_resolvers: ClassVar[dict[str | None, Any]] = {}


for _name, _pattern in _SCALARS.items():
    _Loader.add_implicit_resolver(_PREFIX + _name, re.compile(rf"(?:{_pattern.pattern})\Z"), None)


def read(text: str, file: str, max_values: int | None = None) -> Iterator[Document]:
    """Yield the records of all documents in the text; a document is one record or a list of them.

    Tags, duplicate keys and NaN are errors of their record.
    """
    try:
        _check_size(text, file, max_values)
        for node in yaml.compose_all(text, _Loader):
            builder = _Builder(file)
            several = isinstance(node, yaml.SequenceNode) and node.tag == _PREFIX + "seq"
            items = [((n,), item) for n, item in enumerate(node.value)] if several else [((), node)]
            for root, item in items:
                data = builder.build(item, root)
                errors, builder.errors = builder.errors, []
                yield data, Location(file, *builder.positions[root], builder.positions, root), errors
    except yaml.MarkedYAMLError as error:
        location = Location(file, *_position(error.problem_mark or error.context_mark))
        raise file_error(location, "yaml_invalid", f"{error.problem or error.context}", _HINT) from None
    except yaml.reader.ReaderError as error:
        character = chr(error.character) if isinstance(error.character, int) else error.character
        location = Location(file, text.count("\n", 0, error.position) + 1)
        raise file_error(location, "yaml_invalid", f"character {character!r} is not allowed in YAML") from None


def _position(mark: Any) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


def _check_size(text: str, file: str, max_values: int | None) -> None:
    """Check depth and size before nodes are composed: PyYAML composes them recursively, in C without a limit."""
    depth = 0
    with suppress(yaml.YAMLError):  # it will be raised after the records before it
        for number, event in enumerate(yaml.parse(text, _Loader)):
            if max_values is not None and number > max_values:
                raise too_many_values(Location(file, *_position(event.start_mark)), max_values)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                location = Location(file, *_position(event.start_mark))
                raise file_error(location, "too_deep", f"is nested deeper than {MAX_DEPTH}")


class _Builder:
    """Builds the data of one document, the ``positions`` of its fields, and the ``errors`` that do not stop it."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.positions: dict[FieldPath, tuple[int, int]] = {}
        self.errors: list[FieldError] = []
        self._seen: set[int] = set()
        self._aliased = 0

    def build(self, node: Any, path: FieldPath) -> Any:
        """Return the data of a node."""
        self.positions.setdefault(path, _position(node.start_mark))
        self._aliased += id(node) in self._seen
        self._seen.add(id(node))
        if self._aliased > MAX_ALIASED:
            raise file_error(self._at(node), "too_many_aliases", f"aliases add more than {MAX_ALIASED} values")
        if len(path) > MAX_DEPTH:  # without aliases `_check_size` has excluded it
            message = f"aliases are nested deeper than {MAX_DEPTH}: probably a cycle, an alias within its own value"
            raise file_error(self._at(node), "recursive_alias", message)
        kind = node.tag.removeprefix(_PREFIX)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, kind)
        if kind not in ("map", "seq"):
            self._add_tag(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, number)) for number, item in enumerate(node.value)]
        data: dict[str, Any] = {}
        for key_node, item in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._add(key_node, "yaml_invalid", "a key must be text")
                continue
            key = self._scalar(key_node, "str")
            if key in data:
                message = f"duplicate key {key!r} in one mapping; keep one of them"
                self._add(key_node, "duplicate_key", message)
                continue
            self.positions[(*path, key)] = _position(key_node.start_mark)
            data[key] = self.build(item, (*path, key))
        return data

    def _scalar(self, node: Any, kind: str) -> Any:
        text = node.value
        if kind not in ("str", "!") and (kind not in _SCALARS or not _SCALARS[kind].fullmatch(text)):
            self._add_tag(node)
            kind = "str"
        data = _VALUES[kind](text) if kind in _VALUES else text
        try:
            check_storable(data)
        except JsonError as error:
            self._add(node, error.code, f"{error}, found {text[:20]!r}")
            return "-" if isinstance(data, str) else 1  # a valid value, so that the field has one error
        return data

    def _add_tag(self, node: Any) -> None:
        tag = node.tag.replace(_PREFIX, "!!")
        self._add(node, "yaml_tag", f"tag {tag} is not allowed; write plain text, numbers, lists and mappings")

    def _add(self, node: Any, code: str, message: str) -> None:
        self.errors.append(self._at(node).error(code, message))

    def _at(self, node: Any) -> Location:
        return Location(self.file, *_position(node.start_mark))


_ESCAPED = re.compile(r"[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
"""Characters that YAML folds, forbids or takes for the end of a line: NEL, controls, a byte order mark."""


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.1 or 1.2 reads as something else, and writes long text as a block."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    if _ESCAPED.search(value) or any(pattern.fullmatch(value) for pattern in _SCALARS.values()):
        style = '"'  # the only style with escapes
    return dumper.represent_scalar(_PREFIX + "str", value, style=style)


_Dumper.add_representer(str, _represent_text)


def write(data: dict[str, Any], stream: TextIO) -> None:
    """Write one document, beginning with ``---``, that any reader of YAML 1.1 or 1.2 reads back as it was."""
    yaml.dump(data, stream, Dumper=_Dumper, allow_unicode=True, sort_keys=False, explicit_start=True, width=110)
