"""Pages of DeepScholar-bench (arXiv 2508.20033): papers with their related-work sections, and the works that they cite.

A paper is its abstract and its section under the heading ``# Related work``, whose citations are links to the works. A
work is its title, authors, year and abstract, or else what a search found under its title. Ids are those of arXiv,
without versions, or the first words of the title.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

from rubricsvc.collections.index import Link, Page
from rubricsvc.collections.sources import MAX_TITLE, Pages
from rubricsvc.core.base import storable
from rubricsvc.errors import InvalidError, NotFoundError

PAPERS, CITATIONS = "papers_with_related_works.csv", "recovered_citations.csv"
HEADING = "# Related work"
MAX_ID_WORDS = 6
MIN_FOUND = 0.7
"""Share of the words of a title that the page has which a search found for it."""
_COLUMNS = {
    PAPERS: ("arxiv_id", "title", "abstract", "clean_latex_related_works"),
    CITATIONS: (
        *("parent_paper_arxiv_id", "citation_shorthand", "cited_paper_title", "cited_paper_arxiv_link"),
        *("cited_paper_abstract", "bib_paper_authors", "bib_paper_year", "search_res_title", "search_res_content"),
    ),
}
Row = Mapping[str, str]

_ARXIV = re.compile(r"(?:abs/|pdf/|^)(\d{4}\.\d{4,5}|[\w.-]+/\d{7})(?:v\d+)?/?$")
_CITE = re.compile(r"[ ~]*\\cite\w*\*?(?:\[[^\[\]]*\]){0,2}\{([^{}]*)\}")
_SECTION = re.compile(r"\\((?:sub){0,2})(?:section|paragraph)\*?\{([^{}]*)\}\s*")
_STYLED = re.compile(r"\\(?:text\w+|emph|mathrm|mathbf|underline)\{([^{}]*)\}")
_COMMAND = re.compile(r"\\(?:label|ref|footnote|vspace|hspace|url|cref|autoref)\*?\{[^{}]*\}|\\(?:noindent|par|item)\b")
_WORD = re.compile(r"\w+")


def read_deepscholar(folder: Path) -> Pages:
    """Return the pages of a copy of the benchmark: of its two CSV files.

    A work without an abstract of which the search found another page is left out.

    Raises:
        NotFoundError: A file is missing.
        InvalidError: A file lacks a column, or is not CSV in UTF-8.
    """
    papers = {_arxiv_id(row["arxiv_id"]): row for row in _rows(folder / PAPERS)}
    citations = _rows(folder / CITATIONS)
    works = _works(citations)
    cited: defaultdict[str, dict[str, tuple[str, Row]]] = defaultdict(dict)
    for row in citations:
        if (work := works.get(_key(row))) is not None:
            cited[_arxiv_id(row["parent_paper_arxiv_id"])][row["citation_shorthand"].strip()] = (work[0], row)
    others = {id_: row for id_, row in works.values() if id_ not in papers}
    pages = chain(
        (_paper(id_, row, cited[id_]) for id_, row in papers.items()), (_work(id_, row) for id_, row in others.items())
    )
    return Pages(len(papers) + len(others), pages)


def _rows(path: Path) -> list[Row]:
    if not path.is_file():
        raise NotFoundError(f"there is no file {path}", hint="name a copy of DeepScholar-bench's folder `dataset`")
    csv.field_size_limit(2**31 - 1)  # of the process; a section may be long
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            missing = [name for name in _COLUMNS[path.name] if name not in (reader.fieldnames or ())]
            rows: list[Row] = [
                {name: storable(row[name] or "") for name in _COLUMNS[path.name]} for row in reader if not missing
            ]
    except (csv.Error, UnicodeDecodeError) as error:
        raise InvalidError(f"{path} is not CSV in UTF-8: {error}", hint="fetch it again") from error
    if missing:
        raise InvalidError(f"{path} has no column {missing[0]}", hint=f"expected {', '.join(_COLUMNS[path.name])}")
    return rows


def _works(citations: Iterable[Row]) -> dict[str, tuple[str, Row]]:
    """Return the id and the row of each work that has a text, by its title: a row with an abstract if there is one."""
    works: dict[str, tuple[str, Row]] = {}
    by_id: dict[str, Row] = {}
    for row in sorted(citations, key=lambda row: not row["cited_paper_abstract"]):
        key = _key(row)
        if key and key not in works and _text(row):
            short = "-".join(key.split()[:MAX_ID_WORDS])[:80]
            id_ = _arxiv_id(row["cited_paper_arxiv_link"]) or (short if short not in by_id else f"{short}-{len(by_id)}")
            works[key] = (id_, by_id.setdefault(id_, row))
    return works


def _key(row: Row) -> str:
    """Return the words of the title of a work."""
    return " ".join(_WORD.findall(row["cited_paper_title"].casefold()))


def _text(row: Row) -> str:
    """Return the abstract of a work, or else what a search found if its title has most words of the work's."""
    if row["cited_paper_abstract"].strip():
        return " ".join(row["cited_paper_abstract"].split())
    title, found = (set(_WORD.findall(row[name].casefold())) for name in ("cited_paper_title", "search_res_title"))
    is_found = len(title) > 1 and len(title & found) >= MIN_FOUND * len(title)
    return row["search_res_content"].strip() if is_found else ""


def _work(id_: str, row: Row) -> Page:
    title = " ".join(row["cited_paper_title"].split())
    authors = ", ".join(filter(None, (row["bib_paper_authors"].replace(" and ", ", "), _year(row))))
    text = "\n\n".join(filter(None, (title, authors, _text(row))))
    return Page(id_, title[:MAX_TITLE], text, place=f"{CITATIONS}: {id_}")


def _year(row: Row) -> str:
    return row["bib_paper_year"].partition(".")[0]


def _paper(id_: str, row: Row, cited: Mapping[str, tuple[str, Row]]) -> Page:
    """Return a paper, whose citations of works that are known are links."""
    title = " ".join(row["title"].split())
    text = f"{title}\n\n{' '.join(row['abstract'].split())}\n\n{HEADING}\n\n"
    links: list[Link] = []
    place = 0
    section = row["clean_latex_related_works"]
    for match in _CITE.finditer(section):
        text += _plain(section[place : match.start()])
        place = match.end()
        known = [cited[key] for key in map(str.strip, match[1].split(",")) if key in cited]
        for number, (target, work) in enumerate(known):
            text += "; " if number else " ("
            name = _label(work)
            links.append(Link(len(text), len(text) + len(name), target))
            text += name
        text += ")" * bool(known)
    text += _plain(section[place:])
    return Page(id_, title[:MAX_TITLE], text.rstrip(), tuple(links), f"{PAPERS}: {id_}")


def _label(row: Row) -> str:
    """Return how a work is cited: its first author and its year."""
    author = re.split(r",| and ", row["bib_paper_authors"])[0].split()
    return " ".join(filter(None, (author[-1] if author else row["citation_shorthand"], _year(row))))


def _plain(latex: str) -> str:
    """Return LaTeX without its commands; headings are those of Markdown."""
    text = _SECTION.sub(lambda match: f"#{'#' * (len(match[1]) // 3 or 1)} {match[2]}\n\n", latex)
    return _COMMAND.sub("", _STYLED.sub(r"\1", text)).replace("~", " ").replace("\\%", "%").replace("\\&", "&")


def _arxiv_id(address: str) -> str:
    """Return the id of arXiv in an address, or one by itself, without its version; empty if there is none."""
    match = _ARXIV.search(address.strip())
    return match[1] if match else ""
