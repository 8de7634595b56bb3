"""DeepScholar-bench as a collection: papers whose citations are links, and related-work tasks of them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

from rubricsvc import collections
from rubricsvc.collections import FaultyDocuments, Page
from rubricsvc.collections.deepscholar import CITATIONS, PAPERS, read_deepscholar
from rubricsvc.collections.tasks import Task, synthesize
from rubricsvc.core.prompt import Completion, Message, ToolCall
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError, NotFoundError
from workers import checks

SECTION = r"""\subsection{Taxes}
Taxes reduce inequality~\cite{saez, unknown} and \textbf{optimal} ones~\citep[see][]{mirrlees,saez} need agents.

\paragraph{Agents.} Agents \cite{axtell} and dictionaries \cite{contents} are 10\% of it \cite{agent}."""
PAPER = {
    "arxiv_id": "2506.02838v1",
    "title": "A tax  agent",
    "abstract": "We design\ntaxes.",
    "clean_latex_related_works": SECTION,
}
WORKS = [
    # key, title, address, abstract, authors, year, title and text of what a search found
    ("saez", "Using elasticities", "http://arxiv.org/abs/1234.5678v2", "An optimal rate.", "Saez, E", "2001.0", "", ""),
    ("mirrlees", "Optimal income taxation: a theory", "", "", "J. Mirrlees and P. Diamond", "1971.0",
     "[PDF] Optimal Income Taxation - A Theory", "Found text."),
    ("axtell", "Agents in economics", "", "An agent is a rule.", "", "", "", ""),
    ("contents", "Contents", "", "", "Delli Gatti", "2018.0", "CONTENTS | a dictionary", "Anything inside."),
    ("agent", "Agents in Economics", "", "", "", "", "Agents in economics", "Another text."),
]  # fmt: skip
COLUMNS = (
    *("citation_shorthand", "cited_paper_title", "cited_paper_arxiv_link", "cited_paper_abstract"),
    *("bib_paper_authors", "bib_paper_year", "search_res_title", "search_res_content"),
)


def write(path: Path, rows: Sequence[dict[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / PAPERS, [PAPER])
    rows = [dict(zip(COLUMNS, work, strict=True)) for work in WORKS]
    write(tmp_path / CITATIONS, [row | {"parent_paper_arxiv_id": "2506.02838v1"} for row in rows])
    return tmp_path


def pages_of(folder: Path) -> dict[str, Page]:
    found = read_deepscholar(folder)
    pages = {page.id: page for page in found.pages}
    assert len(pages) == found.total
    return pages


def related_work(folder: Path, source: Path) -> list[Task]:
    faults = FaultyDocuments()
    collections.add(folder, "scholar", read_deepscholar(source).pages, faults, source="a test")
    with collections.open_collection(folder, "scholar") as scholar:
        return list(synthesize(scholar, ["related-work"]))


def test_read_deepscholar_has_papers_and_the_works_that_have_a_text(folder: Path) -> None:
    pages = pages_of(folder)
    assert set(pages) == {"2506.02838", "1234.5678", "optimal-income-taxation-a-theory", "agents-in-economics"}
    assert pages["1234.5678"].text == "Using elasticities\n\nSaez, E, 2001\n\nAn optimal rate."
    assert pages["optimal-income-taxation-a-theory"].text.endswith("J. Mirrlees, P. Diamond, 1971\n\nFound text.")
    assert "An agent is a rule." in pages["agents-in-economics"].text


def test_read_deepscholar_makes_citations_links(folder: Path) -> None:
    page = pages_of(folder)["2506.02838"]
    assert page.text.startswith("A tax agent\n\nWe design taxes.\n\n# Related work\n\n## Taxes\n\nTaxes reduce")
    assert "inequality (Saez 2001) and optimal ones (Mirrlees 1971; Saez 2001) need" in page.text
    assert "dictionaries are 10% of it (agent)." in page.text and "\\" not in page.text
    cited = [(page.text[link.start : link.end], link.target) for link in page.links]
    assert cited == [
        ("Saez 2001", "1234.5678"),
        ("Mirrlees 1971", "optimal-income-taxation-a-theory"),
        ("Saez 2001", "1234.5678"),
        ("axtell", "agents-in-economics"),
        ("agent", "agents-in-economics"),
    ]


def values(task: Task, *cited: str, opened: Sequence[str] = ()) -> dict[str, float | None]:
    calls = tuple(ToolCall(name="open", arguments=f'{{"id": "{id_}"}}', id=id_) for id_ in opened)
    results = (Message(role="tool", name="open", content="A text.", tool_call_id=id_) for id_ in opened)
    text = "They are " + " ".join(f"[{id_}]" for id_ in cited)
    messages = (Message(role="assistant", content="", tool_calls=calls), *results) if opened else ()
    answer = Completion(text=text, messages=(*messages, Message(role="assistant", content=text)) if opened else ())
    verdicts: list[Verdict] = list(checks.run(task.rubric, task.prompt, answer))
    return {one.criterion: one.value for one in verdicts}


def test_related_work_is_scored_by_the_citations_of_the_paper(folder: Path, tmp_path: Path) -> None:
    (task,) = related_work(tmp_path / "collections", folder)
    gold = ("1234.5678", "optimal-income-taxation-a-theory", "agents-in-economics")
    assert (task.id, task.source, task.pages) == (
        "related-work-2506.02838",
        "2506.02838",
        tuple((one,) for one in gold),
    )
    assert "We design taxes." in task.prompt.text and "reduce inequality" not in task.prompt.text
    assert task.prompt.item is not None and task.prompt.item["source"] == "2506.02838"
    all_ = values(task, *gold, opened=gold)
    assert (all_["recall"], all_["precision"], all_["known"]) == (1.0, 1.0, 1.0)
    some = values(task, gold[0], "other", opened=[gold[0], "other"])
    assert (some["recall"], some["precision"]) == (pytest.approx(1 / 3), pytest.approx(1 / 2))
    guessed = values(task, *gold)
    assert (guessed["recall"], guessed["known"]) == (0.0, 0.0)


def test_read_deepscholar_refuses_other_folders(folder: Path) -> None:
    with pytest.raises(NotFoundError):
        read_deepscholar(folder / "nowhere")
    write(folder / PAPERS, [{"arxiv_id": "1"}])
    with pytest.raises(InvalidError) as raised:
        read_deepscholar(folder)
    assert "title" in raised.value.message
    (folder / PAPERS).write_bytes(b"arxiv_id,title\n\xff,\n")
    with pytest.raises(InvalidError):
        read_deepscholar(folder)


def test_deepscholar_bench_has_a_task_for_each_paper(tmp_path: Path, shared_data: Path) -> None:
    tasks = related_work(tmp_path, shared_data / "deepscholar_bench")
    assert len(tasks) == 59
    assert sum(len(task.pages) for task in tasks) > 1200
    assert all(task.source not in {id_ for one in task.pages for id_ in one} for task in tasks)
