"""The text of an HTML page, with its title and links."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from html.parser import HTMLParser

_HIDDEN = frozenset(
    {"script", "style", "template", "noscript", "svg", "nav", "footer", "head", "button", "select", "textarea"}
)
_HIDDEN_ROLES = frozenset({"navigation", "search", "banner", "contentinfo"})
_HIDDEN_NAMES = frozenset({"footer", "headerlink", "navfooter", "navheader", "nosearch"})
"""Classes and ids of navigation: of DocBook, Sphinx, AsciiDoc and SQLite's documentation."""
_PARAGRAPHS = frozenset({"blockquote", "dl", "h1", "h2", "h3", "h4", "h5", "h6", "ol", "p", "pre", "section", "table"})
_LINES = frozenset(
    {"address", "article", "aside", "body", "br", "caption", "dd", "details", "div", "dt", "fieldset", "figcaption"}
    | {"figure", "form", "header", "hr", "li", "main", "summary", "tbody", "tfoot", "thead", "tr", "ul"}
)
_CELLS = frozenset({"td", "th"})
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
MAX_SECONDS = 20.0
"""Processor time for a page. The parser takes quadratic time for tags that never end; 10 MiB of sound HTML take 3 s."""
_BLANKS = re.compile(r"\s+")


class HtmlText(HTMLParser):
    """Reads a page: ``text``, ``title``, and ``links`` as (start, end, address).

    White space is that of the page as it is shown: paragraphs are separated by empty lines. Scripts, styles and
    navigation are left out; where the page marks its main part, so is all around it.

    Raises:
        ValueError: It takes more than `MAX_SECONDS`.
    """

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self._deadline = time.thread_time() + MAX_SECONDS
        self._pieces: list[str] = []
        self._length = 0
        self._gap = ""  # white space before the next word
        self._hidden: list[str] = []
        self._pre = 0
        self._in_title = False
        self._title: list[str] = []
        self._heading: tuple[int, int] | None = None
        self._link: tuple[int, str] | None = None
        self._links: list[tuple[int, int, str]] = []
        self._main: list[str] | None = None  # tags within the main part that are open
        self._main_part: tuple[int, int] | None = None
        self.feed(page)
        self.close()
        text = "".join(self._pieces)
        start, end = self._main_part or (0, len(text))
        start += len(text[start:end]) - len(text[start:end].lstrip())
        self.text = text[start:end].rstrip()
        end = start + len(self.text)
        spans = [(b - len(text[a:b].lstrip()), b, address) for a, b, address in self._links]
        self.links = [(a - start, b - start, address) for a, b, address in spans if start <= a < b <= end]
        heading = text[slice(*self._heading)] if self._heading else ""
        self.title = " ".join("".join(self._title).split()) or " ".join(heading.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        given = dict(attrs)
        if tag == "title" and "svg" not in self._hidden and not self._title:
            self._in_title = True
        if tag not in _VOID and (tag in _HIDDEN or tag in self._hidden or _is_navigation(given)):
            self._hidden.append(tag)
        self._break(tag)
        self._pre += tag == "pre"
        if self._main is not None and tag not in _VOID:
            self._main.append(tag)
        elif self._main_part is None and (tag == "main" or given.get("role") == "main"):
            self._flush()
            self._main, self._main_part = [tag], (self._length, self._length)
        if tag == "h1" and self._heading is None:
            self._flush()
            self._heading = (self._length, self._length)
        if tag == "a" and given.get("href"):
            self._end_link()
            gap = len(self._gap) if self._length else 0
            self._link = (self._length + gap, given["href"] or "")

    def handle_endtag(self, tag: str) -> None:
        """End an element."""
        if tag == "title":
            self._in_title = False
        if tag in self._hidden:
            while self._hidden.pop() != tag:
                pass
        if tag == "a":
            self._end_link()
        if tag == "h1" and self._heading and self._heading[0] == self._heading[1]:
            self._heading = (self._heading[0], self._length)
        if self._main is not None and tag in self._main:
            while self._main.pop() != tag:
                pass
            if not self._main:
                start = self._main_part[0] if self._main_part else 0
                self._main, self._main_part = None, (start, self._length)
        self._break(tag)
        self._pre -= tag == "pre" and self._pre > 0

    def handle_data(self, data: str) -> None:
        """Add text."""
        if time.thread_time() > self._deadline:
            raise ValueError(f"the HTML is not read within {MAX_SECONDS:g} s: it has many broken tags")
        if self._in_title:
            self._title.append(data)
        if self._hidden or self._in_title or not data:
            return
        if self._pre:
            self._flush()
            self._put(data)
            return
        words = _BLANKS.sub(" ", data)
        if words.startswith(" ") and not (self._pieces and self._pieces[-1][-1].isspace()):
            self._gap = self._gap or " "
        if core := words.strip():
            self._flush()
            self._put(core)
            self._gap = " " if words.endswith(" ") else ""

    def close(self) -> None:
        """End the page, and the main part with it if that is open."""
        super().close()
        self._end_link()
        if self._main is not None and self._main_part:
            self._main_part = (self._main_part[0], self._length)

    def _break(self, tag: str) -> None:
        if self._hidden:
            return
        breaks = "\n\n" if tag in _PARAGRAPHS else "\n" if tag in _LINES else " " if tag in _CELLS else ""
        if len(breaks.strip(" ")) >= len(self._gap.strip(" ")):
            self._gap = breaks or self._gap

    def _flush(self) -> None:
        if self._length and self._gap:
            self._put(self._gap)
        self._gap = ""

    def _put(self, text: str) -> None:
        self._pieces.append(text)
        self._length += len(text)

    def _end_link(self) -> None:
        if self._link and self._length > self._link[0]:  # not an image
            self._links.append((self._link[0], self._length, self._link[1]))
        self._link = None


def _is_navigation(attributes: Mapping[str, str | None]) -> bool:
    names = f"{attributes.get('class') or ''} {attributes.get('id') or ''}".split()
    return attributes.get("role") in _HIDDEN_ROLES or not _HIDDEN_NAMES.isdisjoint(names)
