"""The judge that the package ships: questions whose answers are known by construction, and the training's recipe."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@cache
def load_yaml(name: str) -> Any:
    """Return the content of a YAML file of this folder."""
    return yaml.safe_load(files(__package__).joinpath(name).read_text(encoding="utf-8"))
