"""Fenced code blocks of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

PYTHON = ("python", "py", "python3")

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)")

Which = Literal["last", "first", "all", "whole"]
"""Where a check looks: in one of the fenced blocks, in all of them joined, or in the whole text, fences and all."""


@dataclass(frozen=True, slots=True)
class Block:
    """What stands between two fences; ``language`` is the word after the first, in lower case."""

    language: str
    text: str


def blocks(text: str) -> Iterator[Block]:
    """The blocks in order. One that is never closed goes to the end of the text."""
    opened, language, inside = "", "", list[str]()
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if not opened:
            if fence:
                opened, language, inside = fence[1], fence[2].lower(), []
        elif fence and not fence[2] and fence[1].startswith(opened):
            yield Block(language, "\n".join(inside))
            opened = ""
        else:
            inside.append(line)
    if opened:
        yield Block(language, "\n".join(inside))


def without(text: str) -> str:
    """The text without its fenced blocks."""
    kept, opened = [], ""
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if not opened and fence:
            opened = fence[1]
        elif not opened:
            kept.append(line)
        elif fence and not fence[2] and fence[1].startswith(opened):
            opened = ""
    return "\n".join(kept)


def pick(text: str, which: Which, languages: Sequence[str]) -> str:
    """What to look at: blocks of one of the ``languages``, else of none named, else the whole text."""
    return "\n\n".join(picked(text, which, languages))


def picked(text: str, which: Which, languages: Sequence[str]) -> list[str]:
    """The same, each block by itself."""
    if which == "whole":
        return [text]
    found = list(blocks(text))
    fitting = [block.text for block in found if block.language in languages]
    fitting = fitting or [block.text for block in found if not block.language]
    if not fitting:
        return [text]
    return fitting if which == "all" else [fitting[0 if which == "first" else -1]]
