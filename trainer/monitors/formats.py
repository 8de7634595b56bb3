"""Format drift: completions with lists, headings, bold text and emoji."""

from __future__ import annotations

import re
from functools import lru_cache, partial

from trainer.monitors.monitor import Measure
from workers.checks import markdown

_EMOJI = re.compile("[\u2600-\u27bf\u2b50\u2b55\U0001f300-\U0001faff]")


def emoji(prompt: str, text: str) -> float:
    """Return whether a text has an emoji."""
    return float(_EMOJI.search(text) is not None)


def _has(kind: str, prompt: str, text: str) -> float:
    return float(kind in _kinds(text))


@lru_cache(maxsize=1024)  # three measures read the same completions
def _kinds(text: str) -> frozenset[str]:
    """Return the types of a text's Markdown tokens."""
    inline = (token.type for token in markdown.inline_tokens(text))
    return frozenset((*(token.type for token in markdown.tokens(text)), *inline))


lists: Measure = partial(_has, "list_item_open")
headings: Measure = partial(_has, "heading_open")
bold: Measure = partial(_has, "strong_open")
