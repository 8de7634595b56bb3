"""The prose of a completion: its paragraphs, sentences, quotations and citations."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import pairwise

from workers.checks.markdown import tokens

INLINE_CODE = re.compile(r"`[^`\n]*`")
BRACKETS = re.compile(r"(?<![\w)\]])\[([^\[\]\n]{1,200})\](?!\()")
_ID = re.compile(r"[\w.:/#@-]+")
QUOTED = re.compile('“([^“”]+)”|"([^"]+)"|«([^«»]+)»|»([^»«]+)«|„([^„“”]+)[“”]|‚([^‚‘]+)‘')
QUOTATION = "\ue000"  # in the place of one: a character that means nothing
_CITATIONS = r"(?:\s*\[[^\[\]\n]{1,200}\])*+"
_SENTENCE = re.compile(rf"[.!?…][\"'”’)]*{_CITATIONS}\.?(?=\s+([^\s\ue000])|\Z)|[。！？]{_CITATIONS}|\n(?=- )")
"""Its end, with the citations after it; unless a small letter, a digit or a quotation follows. List items end too."""
_ATTRIBUTION = re.compile(r"^\s*(?:—|–|--|\[)", re.MULTILINE)
WORD = re.compile(r"\w+")
_TYPOGRAPHY = str.maketrans('"‘’‚“”„«»–—\u00a0', "'''''''''-- ")


def paragraphs(text: str) -> list[str]:
    """Return the prose without headings and code, each with its lists and with the block quotes after it in “…”."""
    found, depth, end, heading = [""], 0, -1, False
    for token in tokens(text):
        depth += {"blockquote_open": 1, "blockquote_close": -1}.get(token.type, 0)
        if token.type in ("inline", "html_block") and not heading and depth < 3:  # >>> is Python's prompt
            content = _quotation(token.content) if depth else token.content
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


def _quotation(block: str) -> str:
    """Return a paragraph of a block quote in “…”, from a dash or a citation on its source."""
    if block.startswith("[!"):  # a note or a warning, as GitHub writes them
        return ""
    attribution = _ATTRIBUTION.search(block)
    start = attribution.start() if attribution else len(block)
    passage = block[:start].translate(_TYPOGRAPHY).strip()
    return f"“{passage}” {block[start:]}".strip() if passage else block


def sentences(paragraph: str) -> Iterator[str]:
    """Yield the sentences of a paragraph, each with the citations after it."""
    following = ((match.end(), match[1] or "") for match in _SENTENCE.finditer(paragraph))
    ends = [end for end, first in following if not first.islower() and not first.isdigit()]
    return (paragraph[start:end] for start, end in pairwise([0, *ends, len(paragraph)]))


def cited_ids(text: str, known: Collection[str]) -> set[str]:
    """Return the ids in brackets: ``[id]``, ``[a, b]`` and ``[a; b]``; those in code, links and subscripts are none."""
    ids = set[str]()
    for inside in BRACKETS.findall(INLINE_CODE.sub(" ", text)):
        parts = [inside] if inside in known else map(str.strip, re.split("[,;]", inside))
        ids |= {part for part in parts if part in known or _ID.fullmatch(part)}
    return ids


def report_citations(text: str, known: Collection[str]) -> set[str]:
    """Return the ids that a text cites; in quotations brackets with an unknown id are the source's own."""
    prose = "\n".join(paragraphs(text))
    return cited_ids(QUOTED.sub(" ", prose), known) | (cited_ids(prose, known) & set(known))


def occurs_in(text: str, passage: str) -> bool:
    """Return whether whole words match: ``art of war`` does not occur in ``the start of war``."""
    return passage in text and re.search(rf"(?<!\w){re.escape(passage)}(?!\w)", text) is not None


@lru_cache(maxsize=256)  # the documents of a prompt are read for each of its completions
def plain(text: str) -> str:
    """Return the text in lower case, without the differences of quotation marks, dashes and white space."""
    return " ".join(text.translate(_TYPOGRAPHY).casefold().split())
