"""From a file to its records as plain data: JSONL, JSON or YAML, told by the file's ending or its first character."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from rubricsvc.formats.errors import Faults, Place
from rubricsvc.formats.source import Source
from rubricsvc.formats.strictjson import Document, json_file, json_lines
from rubricsvc.formats.yamltext import yaml_records

T = TypeVar("T")


def documents(source: Source, faults: Faults) -> Iterator[Document]:
    """The records of the file, in order.

    A line that is not JSON is a fault; YAML and JSON that is broken ends the reading.

    Raises:
        FormatError: as `Source.open`; or the YAML or JSON is broken.
    """
    ending = source.path.suffix.lower()
    if ending in (".yaml", ".yml"):
        return yaml_records(source)
    if ending == ".json":
        return json_file(source)
    if ending in (".jsonl", ".ndjson") or _begins_with_brace(source):
        return json_lines(source, faults)
    return yaml_records(source)


def parsed(source: Source, faults: Faults, parse: Callable[[Any, Place, Faults], T | None]) -> Iterator[T]:
    """What ``parse`` makes of each record; where it makes None, it has added a fault.

    Raises:
        FormatError: as `documents`.
    """
    for data, place in documents(source, faults):
        made = parse(data, place, faults)
        if made is not None:
            yield made


def _begins_with_brace(source: Source) -> bool:
    with source.open() as stream:
        return stream.read(8192).lstrip().startswith(b"{")
