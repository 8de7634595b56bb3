"""Errors of a configuration file, all at once: each with its path, and where a misplaced field belongs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rubricsvc.core.validation_messages import FieldMessage, field_messages, models_in

Model = TypeVar("Model", bound=BaseModel)

MAX_PLACES = 2
"""Tables that are named for a field that is in the wrong one."""


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
