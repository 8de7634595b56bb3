"""Where documents come from: folders and files, Debian's documentation packages, and CPython's language reference."""

import codecs
import os
import posixpath
import re
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from html.parser import HTMLParser
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from rubricsvc.collections.index import FaultyDocuments, Link, Page
from rubricsvc.core import strict_json
from rubricsvc.core.base import storable
from rubricsvc.core.prompt import Document
from rubricsvc.errors import InvalidError, NotFoundError, UnavailableError, cut

HTML, MARKDOWN, TEXT = (".html", ".htm", ".xhtml"), (".md", ".markdown"), (".txt", ".rst", ".text")
JSONL = (".jsonl", ".ndjson")
MAX_DOCUMENT_BYTES = 10 * 2**20
MAX_TITLE = 200
_TOO_LARGE = f"the document has more than {MAX_DOCUMENT_BYTES >> 20} MiB; split it"

_CHARSET = re.compile(rb"""(?i:<meta[^>]{0,200}charset|^\s*<\?xml[^>]{0,100}\sencoding)\s*=\s*["']?([\w-]{1,40})""")
_NO_ENCODINGS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"})
"""Codecs of Python that no document names in good faith."""
_MARKDOWN_LINK = re.compile(r"(?<!!)\[[^\[\]\n]{1,500}\]\(<?([^()\s<>]{1,500})>?(?:\s[^()\n]{0,500})?\)")
_MARKDOWN_TITLE = re.compile(r"^#[ \t]+(\S.*)$", re.MULTILINE)
_BOMS = {
    "utf-8-sig": (codecs.BOM_UTF8,),
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),  # one begins with that of UTF-16
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}


class Pages(NamedTuple):
    """The pages of a source, and about how many there are."""

    total: int
    pages: Iterable[Page]


def read(path: Path, faults: FaultyDocuments, *, encoding: str = "utf-8") -> Pages:
    """Return the pages at a path, which are read one by one. What cannot be read is added to the faults.

    Hidden files of a folder, and those with other endings, are left out. Files may name another ``encoding``.
    """
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise InvalidError(f"unknown encoding {encoding!r}", hint="for example utf-8, latin-1 or cp1252") from None
    known = ", ".join((*TEXT, *MARKDOWN, *HTML))
    if path.is_dir():
        listed = (file for file in sorted(path.rglob("*")) if file.suffix.lower() in (*TEXT, *MARKDOWN, *HTML))
        shown = (file for file in listed if not any(one.startswith(".") for one in file.relative_to(path).parts))
        inside = path.resolve()  # a link must not bring in what lies elsewhere
        files = [file for file in shown if file.is_file() and file.resolve().is_relative_to(inside)]
        if not files:
            raise InvalidError(f"{path} has no documents", hint=f"expected files that end in {known}")
        return Pages(len(files), read_files(files, path, faults, encoding))
    if not path.exists():
        raise NotFoundError(f"there is no file or folder {path}")
    if path.suffix.lower() in JSONL:
        with path.open("rb") as stream:
            total = sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))
        return Pages(total, _lines(path, faults))
    if path.suffix.lower() in (*TEXT, *MARKDOWN, *HTML):
        return Pages(1, read_files([path], path.parent, faults, encoding))
    raise InvalidError(f"{path} has an unknown ending", hint=f"expected a folder, .jsonl, or a file ending in {known}")


def read_files(files: Iterable[Path], folder: Path, faults: FaultyDocuments, encoding: str = "utf-8") -> Iterator[Page]:
    """Yield the pages of files, whose ids are their paths in a folder. What cannot be read is added to the faults."""
    for file in files:
        place = storable(str(file))
        try:
            with file.open("rb") as stream:
                data = stream.read(MAX_DOCUMENT_BYTES + 1)
            if len(data) > MAX_DOCUMENT_BYTES:
                raise ValueError(_TOO_LARGE)
            html = file.suffix.lower() in HTML
            text = storable(_decoded(data, encoding, html=html)).replace("\r\n", "\n")
            yield _page(storable(file.relative_to(folder).as_posix()), text, place, html=html)
        except (OSError, ValueError) as error:
            faults.add(place, getattr(error, "strerror", None) or str(error))


def _decoded(data: bytes, encoding: str, *, html: bool) -> str:
    named = next((name for name, marks in _BOMS.items() if data.startswith(marks)), None)
    if named is None and html and (match := _CHARSET.search(data[:2048])):
        named = match[1].decode("ascii")
    try:
        if named and codecs.lookup(named).name.replace("_", "-") in _NO_ENCODINGS:
            raise LookupError(named)
        return data.decode(named or encoding)
    except LookupError:
        raise ValueError(f"names the unknown encoding {named or encoding!r}") from None
    except UnicodeDecodeError as error:
        found = f"0x{data[error.start]:02X} at byte {error.start}"
        raise ValueError(f"is not {error.encoding}: {found}; name its encoding with --encoding") from None


def _page(id_: str, text: str, place: str, *, html: bool) -> Page:
    """Return the page of a file, with its title and its links to other files."""
    title, spans = "", list[tuple[int, int, str]]()
    if html:
        page = HtmlText(text)
        text, title, spans = page.text, page.title, page.links
    elif id_.lower().endswith(MARKDOWN):
        heading = _MARKDOWN_TITLE.search(text)
        title = heading[1] if heading else ""
        spans = [(match.start(), match.end(), match[1]) for match in _MARKDOWN_LINK.finditer(text)]
    links = []
    for start, end, address in spans:  # to other files, by paths in the same source
        with suppress(ValueError):
            parts = urlsplit(address.strip())
            target = posixpath.normpath(posixpath.join(posixpath.dirname(id_), unquote(parts.path))).lstrip("/")
            if parts.path and target != id_ and not (parts.scheme or parts.netloc):
                links.append(Link(start, end, target))
    return Page(id_, _title(title, text, id_), text, tuple(links), place)


def _title(given: str, text: str, id_: str) -> str:
    """Return the title, or else the first line of the text if it is short, or the id."""
    if title := " ".join(given.split()):
        return title[:MAX_TITLE]
    line = text.lstrip()[: MAX_TITLE + 1].partition("\n")[0].strip()
    return line if 0 < len(line) <= MAX_TITLE // 2 else id_


def _lines(path: Path, faults: FaultyDocuments) -> Iterator[Page]:
    """Yield the documents of a JSONL file: ``id`` (or ``_id``, as in BEIR), ``text``, ``title``; ignore the rest."""
    with path.open("rb") as stream:
        number = 0
        while line := stream.readline(MAX_DOCUMENT_BYTES + 1):
            number += 1
            place = f"{storable(str(path))}, line {number}"
            if len(line) > MAX_DOCUMENT_BYTES:
                faults.add(place, _TOO_LARGE)
                while line and not line.endswith(b"\n"):
                    line = stream.readline(MAX_DOCUMENT_BYTES)
            elif line.strip():
                try:
                    data = strict_json.parse(line.decode("utf-8-sig"))
                    if not isinstance(data, dict):
                        raise ValueError(f"expected an object with id and text, found {cut(repr(data), 60)}")
                    id_, title = data.get("id", data.get("_id")), data.get("title") or ""
                    id_ = str(id_) if isinstance(id_, int) and not isinstance(id_, bool) else id_
                    for name, value in (("id", id_), ("text", data.get("text")), ("title", title)):
                        if not isinstance(value, str):
                            expected = "a text or a number" if name == "id" else "a text"
                            raise ValueError(f"{name}: expected {expected}, found {cut(repr(value), 60)}")
                    yield Page(str(id_), _title(str(title), data["text"], str(id_)), data["text"], place=place)
                except ValueError as error:
                    faults.add(place, cut(str(error), 300))


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
        names = f"{given.get('class') or ''} {given.get('id') or ''}".split()
        navigation = given.get("role") in _HIDDEN_ROLES or not _HIDDEN_NAMES.isdisjoint(names)
        if tag == "title" and "svg" not in self._hidden and not self._title:
            self._in_title = True
        if tag not in _VOID and (tag in _HIDDEN or tag in self._hidden or navigation):
            self._hidden.append(tag)
        self._break(tag)
        self._pre += tag == "pre"
        if self._main is not None and tag not in _VOID:
            self._main.append(tag)
        elif self._main_part is None and (tag == "main" or given.get("role") == "main"):
            self._put()
            self._main, self._main_part = [tag], (self._length, self._length)
        if tag == "h1" and self._heading is None:
            self._put()
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
            self._put(data)
            return
        words = _BLANKS.sub(" ", data)
        if words.startswith(" ") and not (self._pieces and self._pieces[-1][-1].isspace()):
            self._gap = self._gap or " "
        if core := words.strip():
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

    def _put(self, text: str = "") -> None:
        """Add the white space before, and a text."""
        for piece in (self._gap * bool(self._length), text):
            if piece:
                self._pieces.append(piece)
                self._length += len(piece)
        self._gap = ""

    def _end_link(self) -> None:
        if self._link and self._length > self._link[0]:  # not an image
            self._links.append((self._link[0], self._length, self._link[1]))
        self._link = None


_INDEX = re.compile(r"(?:genindex(?:-.+)?|bookindex|keyword_index)")
_NO_DOCUMENT = re.compile(r"(?:search|py-modindex|doclist|doc_keyword_crossref|(?:book)?toc)")
_SPHINX_TITLE = re.compile(r" [—-] [^—]* documentation$")
_NUMBER = re.compile(r"\A(?:(?:Chapter|Appendix|Part) )?(?:[A-Z]|[IVXLC]+|\d+)(?:\.\d+)*\. (?=\S)")
_QUERY = "${db:Status-Status}\t${Package}\n"


def read_package(package: str, faults: FaultyDocuments, *, encoding: str = "utf-8") -> Pages:
    """Return the pages of a package, which are read one by one. What cannot be read is added to the faults.

    Its name may be without the version: ``postgresql-doc`` is the newest ``postgresql-doc-15``.
    """
    rows = (line.split("\t") for line in _dpkg("--show", "--showformat", _QUERY).splitlines())
    named = re.compile(rf"{re.escape(package)}(?:-\d[\d.]*)?")
    found = [name for status, name in rows if status == "installed" and named.fullmatch(name)]
    files: list[Path] = []
    for name in sorted(found, key=lambda name: [int(number) for number in re.findall(r"\d+", name)]):
        listed = map(Path, _dpkg("--listfiles", name).splitlines())
        files = sorted(file for file in listed if file.suffix.lower() in HTML and file.is_file()) or files
    if not found:
        raise NotFoundError(f"Debian package {package!r} is not installed", hint=f"apt-get install {package}")
    if not files:
        raise InvalidError(f"package {found[0]} has no HTML", hint="name its documentation package, such as NAME-doc")
    root = Path(os.path.commonpath([file.parent for file in files]))
    indexes = [file for file in files if _INDEX.fullmatch(file.stem)]
    documents = [file for file in files if not _INDEX.fullmatch(file.stem) and not _NO_DOCUMENT.fullmatch(file.stem)]
    return Pages(len(documents), _pages(documents, indexes, root, faults, encoding))


def _pages(
    documents: list[Path], indexes: list[Path], root: Path, faults: FaultyDocuments, encoding: str
) -> Iterator[Page]:
    """Yield the pages with the terms that indexes have for them.

    An entry is a line. Its term is what stands before its links (DocBook), or else the first link (Sphinx, SQLite).
    """
    terms: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for page in read_files(indexes, root, FaultyDocuments(), encoding):
        for start, entries in groupby(sorted(page.links), key=lambda link: page.text.rfind("\n", 0, link.start) + 1):
            entry = list(entries)
            term = page.text[start : entry[0].start] or page.text[entry[0].start : entry[0].end]
            if term := " ".join(term.split()).rstrip(" ,"):
                for link in entry:
                    terms[_without_ending(link.target)][term] = None
    for page in read_files(documents, root, faults, encoding):
        id_ = _without_ending(page.id)
        links = tuple(link._replace(target=_without_ending(link.target)) for link in page.links)
        title = _SPHINX_TITLE.sub("", _NUMBER.sub("", page.title)) or page.title
        yield page._replace(id=id_, title=title, links=links, terms=tuple(terms.get(id_, ())))


def _without_ending(path: str) -> str:
    return str(PurePosixPath(path).with_suffix("")) if path.lower().endswith(HTML) else path


def _dpkg(*arguments: str) -> str:
    try:
        # no shell, and names are of installed packages; dpkg-query is Debian's, on the path
        command = ["dpkg-query", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    except OSError as error:
        hint = "name a folder of HTML: rubricsvc collections add NAME PATH"
        raise UnavailableError("this machine has no dpkg-query", hint=hint) from error
    except subprocess.CalledProcessError as error:
        raise UnavailableError(f"dpkg-query failed: {error.stderr.strip()}", hint="dpkg --audit") from error
    return done.stdout


_PARAGRAPH_BREAK = re.compile(r"\n\s*\n")
_HEADING = re.compile(r"^(\S.*)\n([*=~^-])\2{2,}$", re.MULTILINE)


def python_reference() -> Iterator[Document]:
    """Yield CPython's language reference, about 80 long documents, the shortest first: chapters repeat their sections.

    Code, which ``pydoc`` sets in double quotes, is set in backticks, so that double quotes remain for quotations.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise UnavailableError("this Python has no pydoc_data.topics", hint="install CPython's full library") from error
    for name, text in sorted(topics.items(), key=lambda item: (len(item[1]), item[0])):
        paragraphs = _PARAGRAPH_BREAK.split(text.strip())
        for place, paragraph in enumerate(paragraphs):
            if paragraph.count('"') % 2 == 0:  # else a quote is in the code, and the pairs are ambiguous
                paragraphs[place] = re.sub(r'"([^"]+)"', r"`\1`", paragraph)
        plain = "\n\n".join(paragraphs)
        yield Document(id=name, text=plain, title=plain.splitlines()[0])


def python_pages() -> list[Page]:
    """Return the language reference as pages. A mention ``section TITLE`` is a link to the pages with that heading.

    Chapters repeat their sections: a link has several targets where several pages have the heading, but none within
    its page.
    """
    documents = list(python_reference())
    by_heading: dict[str, list[str]] = {}
    for document in documents:
        for title in {match[1] for match in _HEADING.finditer(document.text)}:
            by_heading.setdefault(title, []).append(document.id)
    titles = sorted(by_heading, key=len, reverse=True)
    words = "|".join(r"\s+".join(map(re.escape, title.split())) for title in titles)
    mention = re.compile(rf"\b[Ss]ections?\s+({words})(?!\w)")
    pages = []
    for document in documents:
        links = []
        for match in mention.finditer(document.text):
            targets = by_heading[" ".join(match[1].split())]
            if document.id not in targets:
                links += [Link(match.start(1), match.end(1), target) for target in sorted(targets)]
        place = f"topic {document.id}"
        pages.append(Page(document.id, document.title, document.text, tuple(links), place))
    return pages
