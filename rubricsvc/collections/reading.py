"""Pages of a folder of text, Markdown and HTML files, of one such file, or of a JSONL file."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rubricsvc.collections.building import FaultyDocuments
from rubricsvc.collections.html_text import HtmlText
from rubricsvc.collections.page import Link, Page, linked_file
from rubricsvc.core import strict_json
from rubricsvc.core.base import storable
from rubricsvc.errors import InvalidError, NotFoundError, cut

HTML, MARKDOWN, TEXT = (".html", ".htm", ".xhtml"), (".md", ".markdown"), (".txt", ".rst", ".text")
JSONL = (".jsonl", ".ndjson")
MAX_DOCUMENT_BYTES = 10 * 2**20
MAX_TITLE = 200

_CHARSET = re.compile(
    rb"""(?:<meta[^>]{0,200}charset|^\s*<\?xml[^>]{0,100}\sencoding)\s*=\s*["']?([\w-]{1,40})""", re.IGNORECASE
)
_NO_ENCODINGS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"})
"""Codecs of Python that no document names in good faith."""
_MARKDOWN_LINK = re.compile(r"(?<!!)\[[^\[\]\n]{1,500}\]\(<?([^()\s<>]{1,500})>?(?:\s[^()\n]{0,500})?\)")
_MARKDOWN_TITLE = re.compile(r"^#[ \t]+(\S.*)$", re.MULTILINE)
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins with that of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Pages(NamedTuple):
    """The pages of a source, and about how many there are."""

    total: int
    pages: Iterable[Page]


def read(path: Path, faults: FaultyDocuments, *, encoding: str = "utf-8") -> Pages:
    """Return the pages at a path, which are read one by one. What cannot be read is added to the faults.

    Args:
        path: A folder, whose files with other endings and whose hidden files are left out; or a file.
        faults: Gets what cannot be read.
        encoding: Of files that do not name theirs.

    Raises:
        NotFoundError: There is nothing at the path.
        InvalidError: It is a file of another kind, a folder without documents, or the encoding is unknown.
    """
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise InvalidError(f"unknown encoding {encoding!r}", hint="for example utf-8, latin-1 or cp1252") from None
    known = ", ".join((*TEXT, *MARKDOWN, *HTML))
    if path.is_dir():
        files = [file for file in sorted(path.rglob("*")) if _is_document(file, path)]
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


def _is_document(file: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    if hidden or file.suffix.lower() not in (*TEXT, *MARKDOWN, *HTML) or not file.is_file():
        return False
    return file.resolve().is_relative_to(folder.resolve())  # a link must not bring in what lies elsewhere


def read_files(files: Iterable[Path], folder: Path, faults: FaultyDocuments, encoding: str = "utf-8") -> Iterator[Page]:
    """Yield the pages of files, whose ids are their paths in a folder. What cannot be read is added to the faults."""
    for file in files:
        place = storable(str(file))
        try:
            with file.open("rb") as stream:
                data = stream.read(MAX_DOCUMENT_BYTES + 1)
            if len(data) > MAX_DOCUMENT_BYTES:
                raise ValueError(_too_large())
            html = file.suffix.lower() in HTML
            text = storable(_decoded(data, encoding, html=html)).replace("\r\n", "\n")
            id_ = file.relative_to(folder).as_posix()
            yield (_html if html else _plain)(storable(id_), text, place)
        except (OSError, ValueError) as error:
            faults.add(place, getattr(error, "strerror", None) or str(error))


def _decoded(data: bytes, encoding: str, *, html: bool) -> str:
    named = next((name for mark, name in _BOMS if data.startswith(mark)), None)
    if named is None and html and (match := _CHARSET.search(data[:2048])):
        named = match[1].decode("ascii")
    try:
        if named and codecs.lookup(named).name.replace("_", "-") in _NO_ENCODINGS:
            raise LookupError(named)
        return data.decode(named or encoding)
    except LookupError:
        raise ValueError(f"names the unknown encoding {named or encoding!r}") from None
    except UnicodeDecodeError as error:
        found = " ".join(f"0x{byte:02X}" for byte in data[error.start : error.start + 1])
        raise ValueError(
            f"is not {error.encoding}: {found} at byte {error.start}; name its encoding with --encoding"
        ) from None


def _html(id_: str, text: str, place: str) -> Page:
    page = HtmlText(text)
    found = [(start, end, linked_file(address, id_)) for start, end, address in page.links]
    links = tuple(Link(start, end, target) for start, end, target in found if target)
    return Page(id_, _title(page.title, page.text, id_), page.text, links, place)


def _plain(id_: str, text: str, place: str) -> Page:
    title, links = "", []
    if id_.lower().endswith(MARKDOWN):
        heading = _MARKDOWN_TITLE.search(text)
        title = heading[1] if heading else ""
        for match in _MARKDOWN_LINK.finditer(text):
            if target := linked_file(match[1], id_):
                links.append(Link(match.start(), match.end(), target))
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
                faults.add(place, _too_large())
                while line and not line.endswith(b"\n"):
                    line = stream.readline(MAX_DOCUMENT_BYTES)
            elif line.strip():
                try:
                    yield _record(strict_json.parse(line.decode("utf-8-sig")), place)
                except ValueError as error:
                    faults.add(place, cut(str(error), 300))


def _record(data: Any, place: str) -> Page:
    if not isinstance(data, dict):
        raise ValueError(f"expected an object with id and text, found {cut(repr(data), 60)}")
    id_ = data.get("id", data.get("_id"))
    id_ = str(id_) if isinstance(id_, int) and not isinstance(id_, bool) else id_
    for name, value, expected in (("id", id_, "a text or a number"), ("text", data.get("text"), "a text")):
        if not isinstance(value, str):
            raise ValueError(f"{name}: expected {expected}, found {cut(repr(value), 60)}")
    title = data.get("title") or ""
    if not isinstance(title, str):
        raise ValueError(f"title: expected a text, found {cut(repr(title), 60)}")
    return Page(str(id_), _title(title, data["text"], str(id_)), data["text"], place=place)


def _too_large() -> str:
    return f"the document has more than {MAX_DOCUMENT_BYTES >> 20} MiB; split it"
