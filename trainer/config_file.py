"""Configuration files in TOML: their tables, and all that is wrong with one at once.

Each error has its path, the nearest name of a misspelt field, and where a misplaced one belongs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from rubricsvc.core.validation_messages import FieldMessage, field_messages, models_in
from rubricsvc.errors import InvalidError, NotFoundError

Model = TypeVar("Model", bound=BaseModel)
Config = TypeVar("Config", bound="ConfigSection")

MAX_PLACES = 2
"""Tables that are named for a field that is in the wrong one."""


class ConfigSection(BaseModel):
    """Base of the file's tables. An unknown field is an error: a misspelt setting must not train with the default."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


Check = Callable[[Mapping[str, Any], Path], Iterable[FieldMessage]]
"""Yields what is wrong with the plain data of a file beyond its fields; paths in it are relative to a folder."""


def read_toml(
    path: Path,
    model: type[Config],
    defaults: Mapping[str, Any],
    check: Check = lambda _data, _folder: (),
    changes: Mapping[str, Any] | None = None,
) -> Config:
    """Return the values of a TOML file.

    ``defaults`` are those of fields that it leaves out; ``changes`` are in place of its own, by dotted path.

    Raises:
        NotFoundError: there is no such file.
        InvalidError: it is not TOML, or fields are unknown, missing or out of range, or ``check`` found a problem; the
            message names all of them.
    """
    try:
        data = dict(defaults) | tomllib.loads(path.read_text(encoding="utf-8"))
        for name, value in (changes or {}).items():
            _set(data, name.split("."), value)
    except OSError as error:
        raise NotFoundError(f"cannot read {path}: {error.strerror}", path=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidError(f"{path} is not TOML: {error}", path=str(path)) from error
    config, problems = config_problems(model, data)
    problems += check(data, path.parent)
    if config is None or problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise InvalidError(f"{path} is not a training configuration:\n{lines}", path=str(path))
    return config


def _set(data: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a field in plain data; a table on its way that is missing is added."""
    *tables, name = path
    for table in tables:
        data = data.setdefault(table, {})
        if not isinstance(data, dict):
            raise InvalidError(f"{'.'.join(path)} is not in a table", hint=f"{table} is a value", path=".".join(path))
    data[name] = value


def config_problems(model: type[Model], data: Mapping[str, Any]) -> tuple[Model | None, list[FieldMessage]]:
    """Return the values of plain data, or everything that is wrong with its fields."""
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        messages = field_messages(error, model=model, data=data)
    return None, [_with_place(one, model) if one.code == "extra_forbidden" else one for one in messages]


def _with_place(message: FieldMessage, model: type[BaseModel]) -> FieldMessage:
    """Return the message of an unknown field with the table that has a field of this name, if one has."""
    places = dict.fromkeys(path for path in _paths(model) if path[-1] == message.path[-1])
    if not places:
        return message
    named = [".".join(path) for path in sorted(places, key=len)[:MAX_PLACES]]
    return replace(message, message=f"unknown field in this table; did you mean {' or '.join(named)}?")


def _paths(model: type[BaseModel], above: tuple[type[BaseModel], ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every field at any depth; a model within itself is not entered again."""
    for name, field in model.model_fields.items():
        yield (name,)
        for inner in models_in(field.annotation):
            if inner not in (*above, model):
                yield from ((name, *rest) for rest in _paths(inner, (*above, model)))
