"""docs/training.md lists every field of the configuration, with its default, and every metric."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from tests.model.trainer.tiny import TASKS, share_of_a, tiny_config, tiny_policy
from trainer.config import RunConfig, ServiceJudge
from trainer.loop import train
from trainer.rewards import CallableRewards

PAGE = (Path(__file__).parents[3] / "docs" / "training.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `([a-z_.]+)` \| (.*?) \| .* \|$", PAGE, flags=re.MULTILINE))


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, field in model.model_fields.items():
        inner = ServiceJudge if name == "judge" else field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from fields(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", None if field.is_required() else field.default


def test_training_page_lists_every_field() -> None:
    assert set(ROWS) == {name for name, _ in fields(RunConfig)} | {"judge"}


@pytest.mark.parametrize(("name", "default"), [pair for pair in fields(RunConfig) if pair[1] is not None])
def test_training_page_has_the_default(name: str, default: object) -> None:
    shown = ROWS[name].strip("`")
    assert shown == str(default).lower() or float(shown) == default


def test_training_page_lists_every_metric() -> None:
    history = train(tiny_policy(), TASKS, CallableRewards(share_of_a), tiny_config(steps=1, optim={"kl_beta": 0.1}))
    listed = set(re.findall(r"`([a-zA-Z_/]+)`", PAGE.partition("| metric |")[2]))
    missing = {name for name in history.steps[0] if not {name, name.rpartition("/")[2]} & listed}
    assert missing == {"step"}
