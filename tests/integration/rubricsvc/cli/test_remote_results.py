"""Commands about results print the same of this database and of the service at RUBRICSVC_URL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rubricsvc.settings import get_settings
from rubricsvc.store.session import Database
from tests.cli import Cli, Ran
from tests.scripted_server import scripted_server, text_reply
from tests.service_process import running

Both = Callable[..., Ran]


@pytest.fixture
def both(ready: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    """Run a command here and at a service of the same database; what it prints must be the same."""
    db = Database(get_settings().database_url)
    with running(db) as url:

        def run(*args: object, stdin: str = "", only_there: bool = False) -> Ran:
            monkeypatch.setenv("RUBRICSVC_URL", url)
            there = ready(*args, stdin=stdin)
            monkeypatch.delenv("RUBRICSVC_URL")
            assert only_there or ready(*args, stdin=stdin) == there
            return there

        yield run
    db.close()


def test_best_of_n_is_the_same_over_http(ready: Cli, both: Both, tmp_path: Path) -> None:
    texts = [f"{n} is an answer" for n in range(4)]
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps({"prompt": "What is one?", "text": text}) + "\n" for text in texts))
    assert ready("jobs", "submit", answers, "--judge", "quick", "--wait").code == 0
    labels = [
        {"completion_id": n, "rubric": "first", "criterion": "overall", "annotator": "ann", "value": n / 10}
        for n in range(4, 8)
    ]
    assert ready("labels", "import", "-", stdin="".join(json.dumps(one) + "\n" for one in labels)).code == 0
    found = both("jobs", "bestofn", "--job", 1, "--gold", "labels", "--json")
    assert (found.code, found.json["n"]) == (0, [1, 2, 4]), found.err
    table = both("jobs", "bestofn", "--job", 1, "--gold", "labels")
    assert table.err.count("an interval needs 5 prompts") == 1 and "interval" not in table.out
    assert both("jobs", "bestofn", "--job", 9, "--gold", "labels").code == 3


def test_exports_are_the_same_over_http(ready: Cli, both: Both, tmp_path: Path) -> None:
    assert ready("jobs", "submit", "--judge", "quick", "--wait").code == 0
    assert len(both("jobs", "export", 1).lines) == 2
    for options in (("--kind", "sft", "--top", 2), ("--kind", "dpo"), ("--format", "html")):
        assert both("jobs", "export", 1, *options).code == 0
    assert both("jobs", "export", 1, "--top", 2).code == 2
    assert both("jobs", "export", 9, "--out", tmp_path / "none.jsonl").code == 3


def test_completions_are_sampled_and_shown_over_http(ready: Cli, both: Both, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"id": "a", "prompt": "New?"}\n{"id": "b", "prompt": "Newer?"}\n')
    with scripted_server(text_reply("One.")) as server:
        args = ("completions", "generate", "--judge", server.url, "--model", "m", "--json", "-n")
        first = both(*args, 2, only_there=True)
        assert (first.code, first.json["stored"], first.json["prompts"]) == (0, 6, 3), first.err
        again = both(*args, 3, only_there=True)
        assert (again.json["stored"], again.json["existing"], server.count) == (3, 6, 9)
        assert both(*args, 3).json == ready(*args, 3).json, "nothing is asked for again"
        assert both(*args, 1, "--prompts", prompts, only_there=True).json["stored"] == 2
    assert both("completions", "show", 4, "--json").json["completion"]["text"] == "One."
    assert len(both("completions", "show", "--policy", "m", "--json").lines) == 11


def test_score_and_verdicts_are_the_same_over_http(ready: Cli, both: Both) -> None:
    scored = both("score", "--rubric", "first", "--judge", "quick", "--completion", "-", "--json", stdin="One.")
    assert (scored.code, scored.json["judge"]["name"]) == (0, "quick"), scored.err
    assert both("score", "--rubric", "first", "--judge", "none", "--completion", "-", stdin="One.").code == 3
    assert ready("jobs", "submit", "--judge", "quick", "--wait").code == 0
    assert len(both("verdicts", "list", "--job", 1, "--json").lines) == 3
