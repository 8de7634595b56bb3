"""One HTML page that needs nothing else, out of a Jinja template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def render(template: Path, filters: Mapping[str, Callable[..., Any]], **values: Any) -> str:
    """The page. Texts are escaped, and a value that the template misses is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(template.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    return environment.get_template(template.name).render(values)
