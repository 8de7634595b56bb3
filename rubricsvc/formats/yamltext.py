"""YAML as people mean it: the 1.2 core schema (``no`` is a word), line numbers for every field, no tags, no bombs.

Built from the parser's events, because PyYAML's own composer recurses (its C half dies on deep nesting), keeps the last
of two equal keys, and forgets the lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from rubricsvc.formats.errors import Place, Steps, refuse
from rubricsvc.formats.source import Source
from rubricsvc.formats.strictjson import Document, JsonError, refuse_unkeepable

MAX_DEPTH = 60
MAX_SHARED = 100_000
"""Values that aliases may add to a document, counted as if they were written out."""

NULL = re.compile(r"~|null|Null|NULL|")
BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
INT = re.compile(r"[-+]?[0-9]+")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def yaml_records(source: Source) -> Iterator[Document]:
    """The records of all documents in the file; a document is one record or a list of them."""
    for data, lines in documents(source.text(), source.place):
        if isinstance(data, list):
            for number, item in enumerate(data):
                yield item, Place(source.name, lines.get((number,)), lines, (number,))
        else:
            yield data, Place(source.name, lines.get(()), lines)


def documents(text: str, place: Place) -> Iterator[tuple[Any, dict[Steps, int]]]:
    """Each document's plain data, and the lines of its fields.

    Raises:
        FormatError: it is not YAML, or YAML that is refused here: tags, equal keys, NaN, endless or huge aliases.
    """
    builder = _Builder(place)
    try:
        for event in yaml.parse(text, _Loader):
            if builder.take(event):
                yield builder.done()
                builder = _Builder(place)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise refuse(Place(place.file, mark.line + 1 if mark else None), _words(error), _HINT) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = chr(error.character) if isinstance(error.character, int) else error.character
        raise refuse(Place(place.file, line), f"character {character!r} is not allowed in YAML") from None


_HINT = "a value that holds ': ' or ' #' or begins with one of [{&*!|>'\"%@` wants quotes; indent with blanks"


def _words(error: yaml.MarkedYAMLError) -> str:
    if error.problem and "cannot start any token" in error.problem:
        return "a tab or a reserved character begins here; indent with blanks, and quote text that begins with @ or `"
    context = f" {error.context}" if error.context else ""
    return f"is not YAML here: {error.problem}{context}"


class _Builder:
    """One document. ``stack`` holds the open lists and mappings."""

    def __init__(self, place: Place) -> None:
        self.file = place.file
        self.root: list[Any] = []
        self.stack: list[Any] = [self.root]
        self.keys: list[Any] = [None]  # for each open mapping, the key that waits for its value
        self.steps: Steps = ()
        self.sizes: list[int] = [0]
        self.opened: list[tuple[str | None, int]] = [(None, 0)]
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.lines: dict[Steps, int] = {}
        self.shared = 0

    def done(self) -> tuple[Any, dict[Steps, int]]:
        return self.root[0], self.lines

    def take(self, event: Any) -> bool:
        """Take the next event in; true at the document's end."""
        if isinstance(event, yaml.DocumentEndEvent):
            return True
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            self._alias(str(event.anchor), line)
        elif isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event, line)
            if event.anchor:
                self.anchors[event.anchor] = (value, 1)
            self._put(value, line, 1)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._open({} if isinstance(event, yaml.MappingStartEvent) else [], event, line)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._close()
        return False

    def _refuse(self, line: int, message: str) -> Exception:
        return refuse(Place(self.file, line), message)

    def _alias(self, name: str, line: int) -> None:
        if any(anchor == name for anchor, _ in self.opened):
            raise self._refuse(line, f"*{name} stands inside &{name} itself; that would never end")
        if name not in self.anchors:
            raise self._refuse(line, f"*{name} has no anchor &{name} before it")
        value, size = self.anchors[name]
        self.shared += size
        if self.shared > MAX_SHARED:
            raise self._refuse(line, f"aliases blow the document up by more than {MAX_SHARED} values")
        self._put(value, line, size)

    def _open(self, container: Any, event: Any, line: int) -> None:
        self._refuse_tag(event, line)
        if isinstance(self.stack[-1], dict) and self.keys[-1] is None:
            raise self._refuse(line, "a list or mapping cannot be a key")
        if len(self.stack) > MAX_DEPTH:
            raise self._refuse(line, f"is nested deeper than {MAX_DEPTH}")
        step = self._step()
        self._put(container, line, 0)
        self.steps = (*self.steps, step) if step is not None else ()
        self.stack.append(container)
        self.keys.append(None)
        self.sizes.append(1)
        self.opened.append((event.anchor, line))

    def _close(self) -> None:
        container, size = self.stack.pop(), self.sizes.pop()
        self.keys.pop()
        anchor, _ = self.opened.pop()
        self.sizes[-1] += size
        self.steps = self.steps[:-1]
        if anchor:
            self.anchors[anchor] = (container, size)

    def _step(self) -> str | int | None:
        """Under which key or number the next value will stand; None at the root."""
        top = self.stack[-1]
        if top is self.root:
            return None
        return str(self.keys[-1]) if isinstance(top, dict) else len(top)

    def _put(self, value: Any, line: int, size: int) -> None:
        top = self.stack[-1]
        self.sizes[-1] += size
        if isinstance(top, dict) and self.keys[-1] is None:
            self._key(top, value, line)
            return
        step = self._step()
        self.lines.setdefault((*self.steps, step) if step is not None else (), line)
        if isinstance(top, dict):
            top[self.keys[-1]] = value
            self.keys[-1] = None
        else:
            top.append(value)

    def _key(self, top: dict[str, Any], value: Any, line: int) -> None:
        key = str(value).lower() if isinstance(value, bool) else str(value)
        if isinstance(value, list | dict) or value is None:
            raise self._refuse(line, "a key must be text")
        if key in top:
            raise self._refuse(line, f"key {key!r} stands twice in one mapping; keep one of them")
        self.keys[-1] = key
        self.lines[(*self.steps, key)] = line

    def _refuse_tag(self, event: Any, line: int) -> None:
        if event.tag not in (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:str"):
            name = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise self._refuse(line, f"tag {name} is not allowed; write plain text, numbers, lists and mappings")

    def _scalar(self, event: Any, line: int) -> Any:
        self._refuse_tag(event, line)
        text = event.value
        if event.style or event.tag:
            try:
                refuse_unkeepable(text)
            except JsonError as error:
                raise self._refuse(line, str(error)) from None
            return text
        if NULL.fullmatch(text):
            return None
        if BOOL.fullmatch(text):
            return text.lower() == "true"
        if NOT_FINITE.fullmatch(text) or (len(text) > 300 and FLOAT.fullmatch(text)):
            raise self._refuse(line, f"{text[:20]} is no number to count with; write a finite one")
        if INT.fullmatch(text):
            return int(text)
        if FLOAT.fullmatch(text):
            if abs(float(text)) == float("inf"):
                raise self._refuse(line, f"{text} is too large a number")
            return float(text)
        return text
