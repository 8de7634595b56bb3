"""The tables of a page of docs/ that describe a configuration, and what they must say."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, JsonValue
from pydantic.fields import FieldInfo

DOCS = Path(__file__).parents[1] / "docs"
KINDS = {int: "integer", float: "number", bool: "boolean", str: "text", Path: "path", JsonValue: "value"}
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def table_rows(text: str) -> dict[str, tuple[str, str, str]]:
    """Return type, default and meaning of each field that a page describes."""
    found = re.findall(r"^\| `([a-z_.]+)` \| (.*?) \| (.*?) \| (.*) \|$", text, flags=re.MULTILINE)
    return {name: (kind, default, meaning) for name, kind, default, meaning in found}


def fields(
    model: type[BaseModel], prefix: str = "", *, replaced: Mapping[str, type[BaseModel] | None]
) -> Iterator[tuple[str, FieldInfo]]:
    """Yield the fields of a configuration by dotted name; of ``replaced`` ones those of another model, or none."""
    for name, field in model.model_fields.items():
        inner = replaced.get(name, field.annotation)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from fields(inner, f"{prefix}{name}.", replaced=replaced)
        elif inner is not None:
            yield f"{prefix}{name}", field


def kind(annotation: Any, metadata: list[Any]) -> str:
    """Return the type of a field in words: ``integer ≥ 1``."""
    if get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        return kind(annotation, [bound for info in inner for bound in getattr(info, "metadata", ())])
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(kind(one, metadata) for one in get_args(annotation) if one is not NoneType)
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(annotation))
    if get_origin(annotation) is tuple and get_origin(get_args(annotation)[0]) is Literal:
        *names, last = (f"`{value}`" for value in get_args(get_args(annotation)[0]))
        return f"list of {', '.join(names)} or {last}"
    if (container := {tuple: "list", dict: "table"}.get(get_origin(annotation))) is not None:
        noun, *bounds = kind(next(one for one in reversed(get_args(annotation)) if one is not ...), []).split(" ", 1)
        return " ".join([f"{container} of {noun}s", *bounds])
    bounds = [
        f"{sign} {getattr(one, name):g}" for one in metadata for name, sign in BOUNDS.items() if hasattr(one, name)
    ]
    return f"{KINDS[annotation]} {', '.join(bounds)}".strip()


def check_default(field: FieldInfo, shown: str, *, required: str = "required") -> None:
    """Assert that a page shows the default of a field; an empty one in words."""
    default = field.default
    if field.is_required():
        assert shown == required
    elif default in (None, "", (), {}) or isinstance(default, tuple):
        assert shown.strip()
    else:
        shown = shown.strip("`")
        assert shown == str(default).lower() or float(shown) == default
