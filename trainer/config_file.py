"""Configuration files in TOML: their tables, and all that is wrong with one at once.

Each error has its path, the nearest name of a misspelt field, and where a misplaced one belongs.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, time
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from rubricsvc.core.validation_messages import FieldMessage, FieldPath, field_messages, models_in
from rubricsvc.errors import InvalidError, NotFoundError

Model = TypeVar("Model", bound=BaseModel)
Config = TypeVar("Config", bound="ConfigSection")

MAX_PLACES = 2
"""Tables that are named for a field that is in the wrong one."""
MAX_DEPTH = 32
"""Tables and lists within each other."""


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
    """
    try:
        data = dict(defaults) | tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotFoundError(f"cannot read {path}: {error.strerror}", path=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidError(f"{path} is not TOML: {error}", path=str(path)) from error
    except (RecursionError, ValueError) as error:  # limits of tomllib
        message = f"{path} has an integer of thousands of digits, or is nested too deep"
        raise InvalidError(message, hint="correct the file", path=str(path)) from error
    for name, value in (changes or {}).items():
        _set(data, name.split("."), value)
    config: Config | None = None
    problems = list(_unusable(data))
    if not problems:
        config, problems = config_problems(model, data)
        problems += check(data, path.parent)
    if config is None or problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise InvalidError(f"{path} is not a training configuration:\n{lines}", path=str(path))
    return config


def _unusable(value: Any, path: FieldPath = ()) -> Iterator[FieldMessage]:
    """Yield the values of TOML that no field takes."""
    if len(path) > MAX_DEPTH:
        yield FieldMessage(path[:1], f"expected at most {MAX_DEPTH} tables and lists within each other", "depth")
    elif isinstance(value, dict | list):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _unusable(item, (*path, name))
    elif isinstance(value, date | time):
        yield FieldMessage(path, f"expected no date or time, found {value}; put it in quotes", "date")
    elif isinstance(value, float) and not math.isfinite(value):
        yield FieldMessage(path, f"expected a finite number, found {value}", "finite_number")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        yield FieldMessage(path, "must fit into 64 bits", "int_too_large")
    elif isinstance(value, str) and "\0" in value:
        yield FieldMessage(path, "expected no NUL character", "nul")


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
