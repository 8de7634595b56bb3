"""YAML files that are part of a package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@cache
def load_yaml(package: str, name: str) -> Any:
    """Return the content of a YAML file, whose path is relative to the package."""
    return yaml.safe_load(files(package).joinpath(name).read_text(encoding="utf-8"))
