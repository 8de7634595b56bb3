"""Pages of an installed Debian documentation package: its HTML, and what its indexes name.

Ids are paths below the folder of the HTML, without the ending: ``app-pgdump``, ``library/functools``. Indexes and pages
that only search are no documents. Where an index leads to is kept in ``Page.terms``.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path, PurePosixPath

from rubricsvc.collections.building import FaultyDocuments
from rubricsvc.collections.page import Page
from rubricsvc.collections.reading import HTML, Pages, read_files
from rubricsvc.errors import InvalidError, NotFoundError, UnavailableError

_INDEX = re.compile(r"(?:genindex(?:-.+)?|bookindex|keyword_index)")
_NO_DOCUMENT = re.compile(r"(?:search|py-modindex|doclist|doc_keyword_crossref|(?:book)?toc)")
_SPHINX_TITLE = re.compile(r" [—-] [^—]* documentation$")
_NUMBER = re.compile(r"(?:(?:Chapter|Appendix|Part) )?(?:[A-Z]|[IVXLC]+|\d+)(?:\.\d+)*\. (?=\S)")
_QUERY = "${db:Status-Status}\t${Package}\t${Provides}\t${Depends}\n"


def read_package(package: str, faults: FaultyDocuments, *, encoding: str = "utf-8") -> Pages:
    """Return the pages of a package, which are read one by one. What cannot be read is added to the faults.

    Args:
        package: Name of a package, of what it provides, or without its version: ``postgresql-doc`` is any installed
            ``postgresql-doc-15``.
        faults: Gets what cannot be read.
        encoding: Of pages that do not name theirs.

    Raises:
        NotFoundError: It is not installed.
        InvalidError: It has no HTML.
        UnavailableError: The machine has no dpkg.
    """
    files = _html_of(package)
    root = Path(os.path.commonpath([file.parent for file in files]))
    indexes = [file for file in files if _INDEX.fullmatch(file.stem)]
    documents = [file for file in files if not _INDEX.fullmatch(file.stem) and not _NO_DOCUMENT.fullmatch(file.stem)]
    return Pages(len(documents), _pages(documents, indexes, root, faults, encoding))


def _pages(
    documents: list[Path], indexes: list[Path], root: Path, faults: FaultyDocuments, encoding: str
) -> Iterator[Page]:
    terms = _terms(read_files(indexes, root, FaultyDocuments(), encoding))
    for page in read_files(documents, root, faults, encoding):
        id_ = _without_ending(page.id)
        links = tuple(link._replace(target=_without_ending(link.target)) for link in page.links)
        title = (
            _SPHINX_TITLE.sub("", page.title[number.end() if (number := _NUMBER.match(page.title)) else 0 :])
            or page.title
        )
        yield replace(page, id=id_, title=title, links=links, terms=tuple(terms.get(id_, ())))


def _terms(indexes: Iterator[Page]) -> Mapping[str, Mapping[str, None]]:
    """Return what the indexes name, by the document that they lead to.

    An entry is a line. Its term is what stands before its links (DocBook), or else the first link (Sphinx, SQLite).
    """
    terms: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for page in indexes:
        for start, links in groupby(sorted(page.links), key=lambda link: page.text.rfind("\n", 0, link.start) + 1):
            entry = list(links)
            term = page.text[start : entry[0].start] or page.text[entry[0].start : entry[0].end]
            if term := " ".join(term.split()).rstrip(" ,"):
                for link in entry:
                    terms[_without_ending(link.target)][term] = None
    return terms


def _without_ending(path: str) -> str:
    return str(PurePosixPath(path).with_suffix("")) if path.lower().endswith(HTML) else path


def _html_of(package: str) -> list[Path]:
    """Return the HTML files of an installed package, or else of those that it stands for."""
    installed = _installed()
    candidates = [name for name in _candidates(package, installed) if name in installed]
    for name in candidates:
        listed = map(Path, _dpkg("--listfiles", name).splitlines())
        if files := sorted(file for file in listed if file.suffix.lower() in HTML and file.is_file()):
            return files
    if not candidates:
        raise NotFoundError(f"Debian package {package!r} is not installed", hint=f"apt-get install {package}")
    raise InvalidError(f"package {candidates[0]} has no HTML", hint="name its documentation package, such as NAME-doc")


def _candidates(package: str, installed: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Yield the package, those that provide it, documentation that it depends on, and names with a version."""
    yield package
    yield from (name for name, (provides, _) in installed.items() if package in _names(provides))
    yield from (name for name in _names(installed.get(package, ("", ""))[1]) if "-doc" in name)
    version = re.compile(rf"{re.escape(package)}-\d[\d.]*")
    yield from sorted(filter(version.fullmatch, installed), key=_version, reverse=True)


def _version(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def _names(field: str) -> list[str]:
    """Return the packages that a field of dpkg names, without their versions."""
    return [one.split()[0].partition(":")[0] for one in re.split(r"[,|]", field) if one.strip()]


def _installed() -> dict[str, tuple[str, str]]:
    """Return the installed packages, each with what it provides and what it depends on."""
    rows = (line.split("\t") for line in _dpkg("--show", "--showformat", _QUERY).splitlines())
    return {name: (provides, depends) for status, name, provides, depends in rows if status == "installed"}


def _dpkg(*arguments: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and names are of installed packages
            ["dpkg-query", *arguments],  # noqa: S607 - Debian's, on the path
            capture_output=True,
            text=True,
            check=True,
        )
    except OSError as error:
        hint = "name a folder of HTML: rubricsvc collections add NAME PATH"
        raise UnavailableError("this machine has no dpkg-query", hint=hint) from error
    except subprocess.CalledProcessError as error:
        raise UnavailableError(f"dpkg-query failed: {error.stderr.strip()}", hint="dpkg --audit") from error
    return done.stdout
