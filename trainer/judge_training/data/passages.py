"""Passages of a document, split between paragraphs, sentences and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rubricsvc.core.prompt import Document

PASSAGE_WORDS = 60
"""Target length of a passage, in words."""

_PARAGRAPH_BREAK = re.compile(r"\n\s*\n")
_UNDERLINE = re.compile(r"^[*=~^-]{3,}$", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*“])")


def passages(document: Document, words: int = PASSAGE_WORDS) -> Iterator[Document]:
    """Split a document into passages of about ``words`` words at most.

    It is split between paragraphs, a long paragraph of prose between sentences, and always before a heading. Line
    breaks inside a paragraph of prose become spaces.
    """
    pending: list[str] = []
    number = 1
    for heading, text in [*_pieces(document.text, words), (False, "")]:
        full = len(" ".join([*pending, text]).split()) > words
        if pending and (heading or full or not text):
            ident = document.id if number == 1 else f"{document.id}.{number}"
            yield Document(id=ident, text="\n".join(pending), title=document.title)
            pending, number = [], number + 1
        if text:
            pending.append(text)


def _pieces(text: str, words: int) -> Iterator[tuple[bool, str]]:
    """Yield whether it begins with a heading, and a paragraph or a part of one. Code and grammar keep their lines."""
    for paragraph in _PARAGRAPH_BREAK.split(text):
        lines = [line for line in _UNDERLINE.sub("", paragraph).splitlines() if line.strip()]
        heading = _UNDERLINE.search(paragraph) is not None
        if any("::=" in line or line.lstrip().startswith((">>>", "+-", "|")) for line in lines):
            yield heading, "\n".join(lines)
            continue
        joined = " ".join(line.strip() for line in lines)
        part: list[str] = []
        for sentence in _SENTENCE.split(joined):
            if part and len(" ".join([*part, sentence]).split()) > words:
                yield heading, " ".join(part)
                part, heading = [], False
            part.append(sentence)
        if joined:
            yield heading, " ".join(part)
