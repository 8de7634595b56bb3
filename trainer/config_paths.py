"""The files that a run's configuration names, by paths relative to its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rubricsvc.core.validation_messages import FieldMessage
from trainer.data.config import DataConfig, DataSource

Source = TypeVar("Source", bound=DataSource)


def resolved(source: Source, folder: Path) -> Source:
    """Return a source of prompts with paths relative to the working folder."""
    changes: dict[str, Any] = {
        name: folder / path for name in ("path", "difficulty") if (path := getattr(source, name, None)) is not None
    }
    if isinstance(source, DataConfig):
        changes["domains"] = {name: resolved(domain, folder) for name, domain in source.domains.items()}
    return source.model_copy(update=changes)


_WITH_FILES = ("data", "eval", "demonstrations")
"""Tables of a configuration that name files."""


def path_problems(data: Mapping[str, Any], folder: Path, fields: Sequence[str]) -> Iterator[FieldMessage]:
    """Yield what is wrong with paths, also where other fields are invalid.

    That is: files of data, in these ``fields``, that do not exist, and an ``out`` with the configuration itself in it.
    """
    if isinstance(out := data.get("out"), str) and folder.resolve().is_relative_to((folder / out).resolve()):
        yield FieldMessage(("out",), f"{out!r} holds the configuration itself; name a folder of the run", "own_folder")
    tables: list[tuple[tuple[str, ...], Any]] = [((name,), data.get(name)) for name in _WITH_FILES]
    if isinstance(evaluation := data.get("eval"), dict):
        tables.append((("eval", "other"), evaluation.get("other")))
    domains = tables[0][1].get("domains") if isinstance(tables[0][1], dict) else None
    if isinstance(domains, dict):
        tables += [(("data", "domains", str(name)), domain) for name, domain in domains.items()]
    for path, table in tables:
        for field in fields:
            name = table.get(field) if isinstance(table, dict) else None
            if isinstance(name, str) and not (folder / name).is_file():
                yield FieldMessage((*path, field), f"no such file: {folder / name}", "missing_file")
