"""The structure of Markdown, by the tokens of markdown-it."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.token import Token

from workers.repetitions import UNSPACED

PYTHON = ("python", "py", "python3")

Which = Literal["last", "first", "all", "whole"]
"""Where a check looks: in one of the fenced blocks, in all of them joined, or in the whole text."""

_BLOCKS, _INLINE = (MarkdownIt("commonmark").enable("table").disable("reference") for _ in range(2))
_BLOCKS.core.ruler.enableOnly(["normalize", "block"])
_INLINE.core.ruler.enableOnly(["normalize", "block", "inline"])
"""CommonMark, and GitHub's tables."""


@lru_cache(maxsize=1)  # several checks read the same completion; the tokens of a long one are large
def tokens(text: str, *, inline: bool = False) -> Sequence[Token]:
    """Return the tokens of the block structure; with ``inline`` also those within the lines: emphasis, code, links."""
    if not inline:
        return _BLOCKS.parse(text)
    every = _INLINE.parse(text)
    return [*every, *(child for token in every for child in token.children or ())]


def blocks(text: str) -> list[tuple[str, str]]:
    """Return the fenced blocks, each after the first word of its info string, in lower case.

    An unclosed block extends to the end of the text.
    """
    fences = [token for token in tokens(text) if token.type == "fence"]
    return [((one.info.split() or [""])[0].lower(), one.content.removesuffix("\n")) for one in fences]


def pick(text: str, which: Which, languages: Sequence[str]) -> str:
    """Return the blocks of one of the languages, else those without a language, else the whole text."""
    if which == "whole":
        return text
    every = blocks(text)
    fitting = [block for language, block in every if language in languages]
    fitting = fitting or [block for language, block in every if not language]
    if not fitting:
        return text
    return "\n\n".join(fitting) if which == "all" else fitting[0 if which == "first" else -1]


CODE_SPAN = re.compile(r"`[^`\n]*`")
BRACKETS = re.compile(r"(?<![\w)\]])\[([^\[\]\n]{1,200})\](?!\()")
QUOTED = re.compile('“([^“”]+)”|"([^"]+)"|«([^«»]+)»|»([^»«]+)«|„([^„“”]+)[“”]|‚([^‚‘]+)‘')
QUOTATION = "\ue000"  # in the place of one: a character that means nothing
_CITATIONS = r"(?:\s*\[[^\[\]\n]{1,200}\])*+"
_SENTENCE = re.compile(rf"[.!?…][\"'”’)]*{_CITATIONS}\.?(?=\s+([^\s\ue000])|\Z)|[。！？]{_CITATIONS}|\n(?=- )")
"""Its end, with the citations after it; unless a small letter, a digit or a quotation follows. List items end too."""
_ATTRIBUTION = re.compile(r"^\s*(?:—|–|--|\[)", re.MULTILINE)
BEFORE, AFTER = rf"(?<![^\W{UNSPACED}])", rf"(?![^\W{UNSPACED}])"
"""No letter of a longer word stands before or after; scripts without blanks have no such boundary."""
_TYPOGRAPHY = str.maketrans('"‘’‚“”„«»–—\u00a0', "'''''''''-- ")


def paragraphs(text: str) -> list[str]:
    """Return the prose without headings and code, each with its lists and with the block quotes after it in “…”."""
    found, depth, end, heading = [""], 0, -1, False
    for token in tokens(text):
        depth += {"blockquote_open": 1, "blockquote_close": -1}.get(token.type, 0)
        if token.type in ("inline", "html_block") and not heading and depth < 3:  # >>> is Python's prompt
            content = token.content
            if depth and content.startswith("[!"):  # a note or a warning, as GitHub writes them
                content = ""
            elif depth:  # the quotation in “…”; from a dash or a citation on, its source
                attribution = _ATTRIBUTION.search(content)
                at = attribution.start() if attribution else len(content)
                passage = content[:at].translate(_TYPOGRAPHY).strip()
                content = f"“{passage}” {content[at:]}".strip() if passage else content
            start, stop = token.map or (0, 0)
            if depth or start < end or (found[-1].endswith("”") and _ATTRIBUTION.match(content)):
                found[-1] += f" {content}"
            elif start == end:
                found[-1] += f"\n- {content}"
            else:
                found.append(content)
            end = stop
        heading = token.type == "heading_open" and token.markup.startswith("#")
    return found


def sentences(paragraph: str) -> Iterator[str]:
    """Yield the sentences of a paragraph, each with the citations after it."""
    following = ((match.end(), match[1] or "") for match in _SENTENCE.finditer(paragraph))
    ends = [end for end, first in following if not first.islower() and not first.isdigit()]
    return (paragraph[start:end] for start, end in pairwise([0, *ends, len(paragraph)]))


@lru_cache(maxsize=256)  # the documents of a prompt are read for each of its completions
def plain(text: str) -> str:
    """Return the text in lower case, without the differences of quotation marks, dashes and white space."""
    return " ".join(text.translate(_TYPOGRAPHY).casefold().split())
