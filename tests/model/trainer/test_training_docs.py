"""docs/training.md lists every field of the configuration, with its type and default, and every metric."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tests.model.trainer.tiny import TASKS, share_of_a, tiny_config, tiny_policy
from trainer.config import RunConfig, ServiceJudge
from trainer.loop import train
from trainer.rewards import CallableRewards

PAGE = (Path(__file__).parents[3] / "docs" / "training.md").read_text(encoding="utf-8")
ROWS = {
    name: (kind, default, meaning)
    for name, kind, default, meaning in re.findall(
        r"^\| `([a-z_.]+)` \| (.*?) \| (.*?) \| (.*) \|$", PAGE.partition("## Configuration")[2], flags=re.MULTILINE
    )
}
KINDS = {int: "integer", float: "number", bool: "boolean", str: "text", Path: "path"}
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        inner = ServiceJudge if name == "judge" else field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from fields(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def kind(annotation: Any, metadata: list[Any]) -> str:
    """Return the type of a field in words: ``integer ≥ 1``."""
    if get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        return kind(annotation, [bound for info in inner for bound in info.metadata])
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(kind(one, metadata) for one in get_args(annotation) if one is not NoneType)
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(annotation))
    bounds = [
        f"{sign} {getattr(one, name):g}" for one in metadata for name, sign in BOUNDS.items() if hasattr(one, name)
    ]
    return f"{KINDS[annotation]} {', '.join(bounds)}".strip()


FIELDS = dict(fields(RunConfig))


def test_training_page_lists_every_field() -> None:
    assert set(ROWS) == set(FIELDS) | {"judge"}
    assert all(meaning.strip() for *_, meaning in ROWS.values())


@pytest.mark.parametrize("name", FIELDS)
def test_training_page_has_type_and_default(name: str) -> None:
    field = FIELDS[name]
    shown_kind, shown, _ = ROWS[name]
    assert shown_kind == kind(field.annotation, field.metadata)
    if field.is_required():
        assert shown == ("`runs/NAME`" if name == "out" else "required")
    elif field.default is not None:
        shown = shown.strip("`")
        assert shown == str(field.default).lower() or float(shown) == field.default


def test_training_page_lists_every_metric() -> None:
    history = train(tiny_policy(), TASKS, CallableRewards(share_of_a), tiny_config(steps=1, optim={"kl_beta": 0.1}))
    listed = set(re.findall(r"`([a-zA-Z_/]+)`", PAGE.partition("| metric |")[2]))
    missing = {name for name in history.steps[0] if not {name, name.rpartition("/")[2]} & listed}
    assert missing == {"step"}
