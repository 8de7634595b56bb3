"""Render pages: texts are escaped, and characters that hide or reorder text are made visible."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

    from rubricsvc.core.verdict import Verdict

_HIDDEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Controls other than tab and line feed, overrides of direction, invisible characters, tags, lone surrogates.

Joiners and marks of direction are part of scripts and emoji.
"""


def visible(text: str) -> str:
    """Replace each character that hides or reorders text by U+FFFD."""
    return _HIDDEN.sub("\ufffd", text.replace("\r\n", "\n"))


def number(value: float | None, digits: int = 2, sign: str = "-") -> str:
    """Return the number with fixed digits and without "-0.00", of either sign with ``+``; a dash for None."""
    return "–" if value is None else f"{value:{sign}z.{digits}f}".replace("-", "−")


def verdict(value: Verdict | None) -> str:
    """Return a verdict's value, or its outcome if it has none; a dash for None."""
    if value is None or value.outcome == "scored":
        return number(None if value is None else value.value)
    return f"failed: {value.reason}" if value.outcome == "failed" else value.outcome


FILTERS: dict[str, Callable[..., str]] = {
    "number": number,
    "verdict": verdict,
    # a share as a CSS length or a figure in percent; None is 0
    "percent": lambda share: f"{100 * (share or 0.0):.4g}%",
    # a share in whole percent, with a decimal if it is small; a dash for None
    "whole": lambda share: "–" if share is None else number(100 * share, int(0 < abs(share) < 0.1)) + " %",
    # a weight with as few digits as it needs
    "weight": lambda value: f"{value:g}".replace("-", "−"),
}
"""The filters of the templates."""


def render(template: str, **values: Any) -> str:
    """Render a template of this package; an undefined value is an error."""
    return _environment().get_template(template).render({"version": version("rubricsvc"), **values})


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("rubricsvc.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    environment.filters |= FILTERS
    return environment
