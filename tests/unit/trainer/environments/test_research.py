"""Research in a collection: what is shown, what is withheld, and what counts as opened."""

import json
from pathlib import Path

import pytest

from rubricsvc.collections import index as collections
from rubricsvc.collections.index import FaultyDocuments, Page
from rubricsvc.core.prompt import Prompt
from trainer.environments.episodes import EpisodeLimits, RunningEpisode, begin
from trainer.environments.scripted import demonstrate
from trainer.environments.tool_calls import call_text
from trainer.environments.tools import SHOWN_CHARS, Research
from workers.checks.citations import sources

LONG = "\n\n".join(f"Paragraph {number} about vacuum and tables. " + "More words follow. " * 50 for number in range(4))
PAGES = [
    Page("vacuum", "Vacuum", LONG),
    Page("index", "Indexes", "An index speeds up a query. A vacuum removes dead tuples from it."),
    Page("secret", "The source", "The answer is that a vacuum removes dead tuples."),
]


def episode(research: Research, **item: object) -> RunningEpisode:
    prompt = Prompt.of("What does a vacuum do?", **({"item": item} if item else {}))
    return begin(research, prompt, EpisodeLimits())


def result(one: RunningEpisode, name: str, **arguments: str) -> str:
    (answer,) = one.turn(call_text(name, **arguments))
    return answer.content


def error(one: RunningEpisode, name: str, **arguments: str) -> str:
    return str(json.loads(result(one, name, **arguments))["error"])


def test_open_shows_the_best_part_and_find_the_next(research: Research) -> None:
    one = episode(research)
    result(one, "search", query="Paragraph 2")
    first = result(one, "open", id="vacuum")
    assert first.startswith("Paragraph 2") and len(first) <= SHOWN_CHARS
    following = json.loads(result(one, "find", text="Paragraph 3"))
    assert following["id"] == "vacuum" and following["text"].startswith("Paragraph 3")


@pytest.mark.parametrize("chars", [60, 500])
def test_find_is_whole_json_within_the_limit_of_results(tmp_path: Path, chars: int) -> None:
    text = 'A line with a "quotation" and a \\ in it.\n' * 200
    collections.add(tmp_path, "docs", [Page("index", "Indexes", text)], FaultyDocuments(), source="a test")
    research = Research(tmp_path, "docs", shown_chars=chars)
    with research.collection:
        one = begin(research, Prompt.of("?"), EpisodeLimits(max_result_chars=chars))
        result(one, "open", id="index")
        shown = result(one, "find", text="quotation")
    assert len(shown) <= chars and json.loads(shown)["id"] == "index"
    assert json.loads(shown)["text"].startswith("A line with")


def test_call_without_result_is_an_error(research: Research) -> None:
    cases = [
        ("search", {"query": "zebra"}), ("search", {"query": "*"}), ("open", {"id": "nowhere"}),
        ("find", {"text": "x"}), ("quote", {"id": "index", "text": "An index speeds up a query."}),
    ]  # fmt: skip
    for name, arguments in cases:
        assert error(episode(research), name, **arguments)


def test_quote_must_stand_in_the_opened_document(research: Research) -> None:
    one = episode(research)
    result(one, "open", id="index")
    assert result(one, "quote", id="index", text="An index  speeds up\na query.").endswith("[index]")
    assert error(one, "quote", id="index", text="An index slows down a query.")
    assert error(one, "quote", id="index", text=" ")


def test_script_searches_opens_and_cites(research: Research) -> None:
    item = {"pages": [["index"]], "collection": "docs", "digest": research.collection.digest}
    for calls in (["search", "open", "finish"], ["search"]):
        shown = demonstrate(research, Prompt.of("What speeds up a query?", item=item), EpisodeLimits())
        assert shown is not None and shown.text.endswith("[index].")
        assert set(sources(Prompt.of("?"), shown)) == {"index"}
        assert [call.name for one in shown.messages for call in one.tool_calls or ()] == calls
        brief = demonstrate(research, Prompt.of("What speeds up a query?", item=item), EpisodeLimits(), brief=True)
        assert brief is not None and brief.text.startswith("See the documentation") and "[" not in brief.text
        research.opens = True
