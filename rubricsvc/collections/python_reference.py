"""CPython's language reference, which comes with most installations of it: ``pydoc_data.topics``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rubricsvc.collections.page import Link, Page
from rubricsvc.core.prompt import Document
from rubricsvc.errors import UnavailableError

_PARAGRAPH_BREAK = re.compile(r"\n\s*\n")
_HEADING = re.compile(r"^(\S.*)\n([*=~^-])\2{2,}$", re.MULTILINE)


def python_reference() -> Iterator[Document]:
    """Yield CPython's language reference, about 80 long documents, the shortest first: chapters repeat their sections.

    Code, which ``pydoc`` sets in double quotes, is set in backticks, so that double quotes remain for quotations.

    Raises:
        UnavailableError: this Python was installed without it.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise UnavailableError("this Python has no pydoc_data.topics", hint="install CPython's full library") from error
    for name, text in sorted(topics.items(), key=lambda item: (len(item[1]), item[0])):
        plain = "\n\n".join(_code_in_backticks(paragraph) for paragraph in _PARAGRAPH_BREAK.split(text.strip()))
        yield Document(id=name, text=plain, title=plain.splitlines()[0])


def _code_in_backticks(paragraph: str) -> str:
    if paragraph.count('"') % 2:
        return paragraph  # a quote inside the code: the pairs are ambiguous
    return re.sub(r'"([^"]+)"', r"`\1`", paragraph)


def python_pages() -> list[Page]:
    """Return the language reference as pages. A mention ``section TITLE`` is a link to the pages with that heading.

    Chapters repeat their sections: a link has several targets where several pages have the heading, but none within
    its page.

    Raises:
        UnavailableError: this Python was installed without it.
    """
    documents = list(python_reference())
    by_heading: dict[str, list[str]] = {}
    for document in documents:
        for title in {match[1] for match in _HEADING.finditer(document.text)}:
            by_heading.setdefault(title, []).append(document.id)
    titles = sorted(by_heading, key=len, reverse=True)
    words = "|".join(r"\s+".join(map(re.escape, title.split())) for title in titles)
    mention = re.compile(rf"\b[Ss]ections?\s+({words})(?!\w)")
    return [
        Page(
            document.id,
            document.title,
            document.text,
            tuple(
                Link(match.start(1), match.end(1), target)
                for match in mention.finditer(document.text)
                for target in sorted(_targets(by_heading, match[1], document.id))
            ),
            f"topic {document.id}",
        )
        for document in documents
    ]


def _targets(by_heading: dict[str, list[str]], mentioned: str, page: str) -> list[str]:
    """Return the pages with a heading; none if the mentioning page has it too."""
    pages = by_heading[" ".join(mentioned.split())]
    return [] if page in pages else pages
