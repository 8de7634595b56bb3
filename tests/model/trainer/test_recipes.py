"""The demo is the recipe for research in small."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rubricsvc.cli.demo.command import FULL, TEMPLATE
from trainer.config import RunConfig, load_config

RECIPES = Path(__file__).parents[3] / "recipes"
SIZES = {"steps", "checkpoint_every", "demonstrations.steps", "eval.share", "eval.every"}
"""What recipe and demo differ in."""


def test_demo_is_the_recipe_in_small(tmp_path: Path) -> None:
    demo, recipe = (
        _flat(_read(tmp_path, text).model_dump(mode="json"))
        for text in (TEMPLATE.read_text().format(seed=0, **asdict(FULL)), (RECIPES / "research.toml").read_text())
    )
    more = {name for name in recipe if name.startswith(("eval.baselines", "eval.other"))}
    assert {name for name in demo | recipe if demo.get(name) != recipe.get(name)} - more == SIZES


def _read(folder: Path, text: str) -> RunConfig:
    (folder / "recipe.toml").write_text(text)
    for name in ("tasks.jsonl", "other.jsonl"):
        (folder / name).touch()
    return load_config(folder / "recipe.toml")


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found
