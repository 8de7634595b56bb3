"""The leak guard: pages that are withheld, and results that hold the answer nevertheless."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rubricsvc.collections import index as collections
from rubricsvc.collections.index import FaultyDocuments, Link, Page
from rubricsvc.core.prompt import Prompt
from trainer.environments.episodes import EpisodeLimits, LeakGuard, RunningEpisode, begin
from trainer.environments.tool_calls import Tool, call_text
from trainer.environments.tools import Research

ANSWER = "A dead row is removed from every index by the command vacuum, which also updates the visibility map."
OTHER = "Rows that a transaction has deleted stay in the file until no transaction can see them."
START = len(OTHER) + 1 + ANSWER.index("vacuum")
PAGES = [
    Page("source", "Dead rows", f"{OTHER} {ANSWER}", (Link(START, START + 6, "vacuum"),)),
    Page("chapter", "All about rows", f"First. {OTHER} {ANSWER} Last."),
    Page("mirror", "Mirror", f"{OTHER.lower()}\n{ANSWER.upper()}"),
    Page(
        "quoting", "A letter", f"Somebody wrote to us last week: {ANSWER} " + "We answered with many other words. " * 9
    ),
    Page("vacuum", "Vacuum", "Vacuum is a command that removes dead rows of tables and of indexes."),
    Page("full", "Vacuum full", f"{ANSWER} " + "Vacuum full writes the whole table to a new file. " * 9),
]


@pytest.fixture
def research(tmp_path: Path) -> Iterator[Research]:
    collections.add(tmp_path, "docs", PAGES, FaultyDocuments(), source="a test")
    environment = Research(tmp_path, "docs", snippet_chars=0)
    with environment.collection:
        yield environment


def prompt(*pages: str, source: str | None = "source") -> Prompt:
    return Prompt.of("Which page?", item={"pages": [[id_] for id_ in pages], **({"source": source} if source else {})})


def opened(episode: RunningEpisode, id_: str) -> str:
    (message,) = episode.turn(call_text("open", id=id_))
    return message.content


def test_guard_withholds_the_source_and_its_near_copies_but_no_page_to_be_found(research: Research) -> None:
    assert research.leak_guard(prompt("vacuum")).withheld == {"source", "chapter", "mirror"}
    assert research.leak_guard(prompt("mirror")).withheld == {"source", "chapter"}
    assert research.leak_guard(prompt("vacuum", source=None)).withheld == frozenset()
    assert research.leak_guard(prompt("vacuum", source="no such page")).withheld == frozenset()


def test_result_with_a_sentence_that_answers_is_a_leak(research: Research) -> None:
    episode = begin(research, prompt("vacuum"), EpisodeLimits())
    opened(episode, "vacuum")
    assert episode.counts["leak_hits"] == 0
    opened(episode, "quoting")
    assert episode.counts["leak_hits"] == 1
    (leak,) = episode.leaks
    assert (leak["tool"], leak["arguments"]) == ("open", '{"id": "quoting"}')
    assert (leak["source"], leak["sentence"]) == ("source", ANSWER)


class Telling:
    """An environment with a tool of somebody else, which shows what the search withholds."""

    tools = (Tool("fetch", "Fetch a page.", {"id": "Its id."}),)
    report = None

    def __init__(self, guard: LeakGuard) -> None:
        self.guard = guard

    def leak_guard(self, prompt: Prompt) -> LeakGuard:
        return self.guard

    def reset(self, prompt: Prompt) -> Telling:
        return self

    def step(self, name: str, arguments: Mapping[str, str]) -> str:
        return f"Page: {ANSWER[:80]}"


def test_result_of_any_tool_is_guarded_also_where_it_is_cut(research: Research) -> None:
    episode = begin(Telling(research.leak_guard(prompt("vacuum"))), prompt("vacuum"), EpisodeLimits())
    episode.turn(call_text("fetch", id="source"))
    assert episode.counts["leak_hits"] == 1
