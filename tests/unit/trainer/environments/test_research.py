"""Research in a collection: what is shown, what is withheld, and what counts as opened."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rubricsvc import collections
from rubricsvc.collections import FaultyDocuments, Page
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.errors import InvalidError, NotFoundError
from trainer.environments.episodes import EpisodeLimits, RunningEpisode, begin
from trainer.environments.scripted import demonstrate
from trainer.environments.tool_calls import call_text, notes_of
from trainer.environments.tools import SHOWN_CHARS, Research
from workers.checks.citations import sources

LONG = "\n\n".join(f"Paragraph {number} about vacuum and tables. " + "More words follow. " * 50 for number in range(4))
PAGES = [
    Page("vacuum", "Vacuum", LONG),
    Page("index", "Indexes", "An index speeds up a query. A vacuum removes dead tuples from it."),
    Page("secret", "The source", "The answer is that a vacuum removes dead tuples."),
]


@pytest.fixture
def research(tmp_path: Path) -> Iterator[Research]:
    collections.add(tmp_path, "docs", PAGES, FaultyDocuments(), source="a test")
    environment = Research(tmp_path, "docs")
    with environment.collection:
        yield environment


def episode(research: Research, **item: object) -> RunningEpisode:
    prompt = Prompt.of("What does a vacuum do?", **({"item": item} if item else {}))
    return begin(research, prompt, EpisodeLimits())


def result(one: RunningEpisode, name: str, **arguments: str) -> str:
    (answer,) = one.turn(call_text(name, **arguments))
    return answer.content


def error(one: RunningEpisode, name: str, **arguments: str) -> str:
    return str(json.loads(result(one, name, **arguments))["error"])


def test_search_shows_ids_and_titles(research: Research) -> None:
    shown = result(episode(research), "search", query="vacuum AND (tuples")
    assert {line.split("]")[0] for line in shown.splitlines()} == {"[vacuum", "[index", "[secret"}


def test_withheld_document_is_neither_found_nor_opened(research: Research) -> None:
    one = episode(research, source="secret")
    assert "secret" not in result(one, "search", query="dead tuples answer")
    assert error(one, "open", id="secret")
    assert error(one, "quote", id="secret", text="dead tuples")


def test_open_shows_the_best_part_and_find_the_next(research: Research) -> None:
    one = episode(research)
    result(one, "search", query="Paragraph 2")
    first = result(one, "open", id="vacuum")
    assert first.startswith("Paragraph 2")
    assert len(first) <= SHOWN_CHARS
    following = json.loads(result(one, "find", text="Paragraph 3"))
    assert following["id"] == "vacuum"
    assert following["text"].startswith("Paragraph 3")


@pytest.mark.parametrize("chars", [60, 500])
def test_find_is_whole_json_within_the_limit_of_results(tmp_path: Path, chars: int) -> None:
    text = 'A line with a "quotation" and a \\ in it.\n' * 200
    collections.add(tmp_path, "docs", [Page("index", "Indexes", text)], FaultyDocuments(), source="a test")
    research = Research(tmp_path, "docs", shown_chars=chars)
    with research.collection:
        one = begin(research, Prompt.of("?"), EpisodeLimits(max_result_chars=chars))
        result(one, "open", id="index")
        shown = result(one, "find", text="quotation")
    assert len(shown) <= chars
    assert json.loads(shown)["id"] == "index"
    assert json.loads(shown)["text"].startswith("A line with")


def test_find_ends_with_the_document(research: Research) -> None:
    one = begin(research, Prompt.of("?"), EpisodeLimits(max_turns=20))
    result(one, "open", id="index")
    assert error(one, "find", text="vacuum")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("search", {"query": "zebra"}),
        ("search", {"query": "*"}),
        ("open", {"id": "nowhere"}),
        ("find", {"text": "x"}),
        ("quote", {"id": "index", "text": "An index speeds up a query."}),
    ],
)
def test_call_without_result_is_an_error(research: Research, name: str, arguments: dict[str, str]) -> None:
    assert error(episode(research), name, **arguments)


def test_quote_must_stand_in_the_opened_document(research: Research) -> None:
    one = episode(research)
    result(one, "open", id="index")
    assert result(one, "quote", id="index", text="An index  speeds up\na query.").endswith("[index]")
    assert error(one, "quote", id="index", text="An index slows down a query.")
    assert error(one, "quote", id="index", text=" ")


def test_quote_must_stand_in_a_part_that_was_shown(research: Research) -> None:
    one = begin(research, Prompt.of("?"), EpisodeLimits(max_turns=20))
    result(one, "search", query="Paragraph 2")
    result(one, "open", id="vacuum")
    passage = "Paragraph 3 about vacuum and tables."
    assert error(one, "quote", id="vacuum", text=passage)
    result(one, "find", text="Paragraph 3")
    assert result(one, "quote", id="vacuum", text=passage).endswith("[vacuum]")


def test_finish_ends_with_the_report(research: Research) -> None:
    one = episode(research)
    result(one, "open", id="index")
    assert one.turn(call_text("finish", report="It removes dead tuples [index].")) == []
    assert one.report == "It removes dead tuples [index]."
    opened = sources(Prompt.of("?"), Completion(text=one.report, messages=tuple(one.messages)))
    assert set(opened) == {"index"}


def test_prompt_of_another_collection_is_refused(research: Research) -> None:
    with pytest.raises(InvalidError):
        episode(research, digest="0" * 64)
    assert episode(research, digest=research.collection.digest)


def test_unknown_collection_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        Research(tmp_path, "docs")


def test_script_searches_opens_and_cites(research: Research) -> None:
    item = {"pages": [["index"]], "collection": "docs", "digest": research.collection.digest}
    shown = demonstrate(research, Prompt.of("What speeds up a query?", item=item), EpisodeLimits())
    assert shown is not None
    assert [call.name for one in shown.messages for call in one.tool_calls or ()] == ["search", "open", "finish"]
    assert shown.text.endswith("[index].")
    assert set(sources(Prompt.of("?"), shown)) == {"index"}


def test_script_notes_what_it_cites(research: Research) -> None:
    item = {"pages": [["index"], ["vacuum"]]}
    shown = demonstrate(research, Prompt.of("What speeds up a query?", item=item), EpisodeLimits(notes=True))
    assert shown is not None
    calls = [call for one in shown.messages for call in one.tool_calls or ()]
    assert [call.name for call in calls] == ["search", "open", "note", "search", "open", "note", "finish"]
    notes = [json.loads(call.arguments)["text"] for call in calls if call.name == "note"]
    assert " ".join(notes) == shown.text
    kept = notes_of(shown.messages)
    assert [message.role for message in kept] == ["assistant", "tool"] * 2
    assert not any("More words follow" in message.text for message in kept)


def test_script_without_pages_takes_the_first_hit(research: Research) -> None:
    shown = demonstrate(research, Prompt.of("Which index speeds up a query?"), EpisodeLimits())
    assert shown is not None
    assert "[index]" in shown.text


def test_script_gives_up_where_the_search_does_not_find_the_page(research: Research) -> None:
    item = {"pages": [["secret"]], "source": "secret"}
    assert demonstrate(research, Prompt.of("?", item=item), EpisodeLimits()) is None
    assert demonstrate(research, Prompt.of("Zebra?"), EpisodeLimits()) is None
    assert demonstrate(research, Prompt.of("Which index?"), EpisodeLimits(max_turns=1)) is None


def test_open_shows_the_paragraph_of_the_query(tmp_path: Path) -> None:
    paragraphs = ["A long beginning of the page.", "Changed in version 3.5: it is writable.", "The end of the page."]
    pages = [Page("notes", "Notes", "\n\n".join(paragraphs))]
    collections.add(tmp_path, "notes", pages, FaultyDocuments(), source="a test")
    one = episode(Research(tmp_path, "notes", shown_chars=60))
    result(one, "search", query="notes version 3.5")
    assert result(one, "open", id="notes").startswith("Changed in version 3.5")
