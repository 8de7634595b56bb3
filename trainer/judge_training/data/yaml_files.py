"""The YAML files of this package."""

from __future__ import annotations

from typing import Any

from workers import packaged_yaml


def load_yaml(name: str) -> Any:
    """Return the content of a YAML file, whose path is relative to this module."""
    return packaged_yaml.load_yaml(__package__, name)
