"""The structure of Markdown, by the tokens of markdown-it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

PYTHON = ("python", "py", "python3")

Which = Literal["last", "first", "all", "whole"]
"""Where a check looks: in one of the fenced blocks, in all of them joined, or in the whole text."""


class Block(NamedTuple):
    """A fenced block; ``language`` is the first word of its info string, in lower case."""

    language: str
    text: str


def _parser(*rules: str) -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table").disable("reference")
    parser.core.ruler.enableOnly(["normalize", *rules])
    return parser


_BLOCKS, _INLINE = _parser("block"), _parser("block", "inline")


@lru_cache(maxsize=1)  # several checks read the same completion; the tokens of a long one are large
def tokens(text: str) -> Sequence[Token]:
    """Return the tokens of the block structure: CommonMark, and GitHub's tables."""
    return _BLOCKS.parse(text)


def inline_tokens(text: str) -> Iterator[Token]:
    """Yield the tokens within the lines: emphasis, code, links."""
    return (child for token in _INLINE.parse(text) for child in token.children or ())


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks in order. An unclosed one extends to the end of the text."""
    for token in tokens(text):
        if token.type == "fence":
            language = (token.info.split() or [""])[0].lower()
            yield Block(language, token.content.removesuffix("\n"))


def without_blocks(text: str) -> str:
    """Return the text without its fenced blocks."""
    lines = re.split(r"\r\n|\r|\n", text)
    fenced = {line for token in tokens(text) if token.type == "fence" and token.map for line in range(*token.map)}
    return "\n".join(line for number, line in enumerate(lines) if number not in fenced)


def pick(text: str, which: Which, languages: Sequence[str]) -> str:
    """Return the blocks of one of the languages, else those without a language, else the whole text."""
    if which == "whole":
        return text
    every = list(blocks(text))
    fitting = [block.text for block in every if block.language in languages]
    fitting = fitting or [block.text for block in every if not block.language]
    if not fitting:
        return text
    return "\n\n".join(fitting) if which == "all" else fitting[0 if which == "first" else -1]
