"""Commands do at RUBRICSVC_URL what they do with a database of their own."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from rubricsvc.store.session import Database
from tests.cli import Cli, Ran, add_judge
from tests.databases import sqlite_at
from tests.rubric_writer import writer
from tests.scripted_server import scripted_server, text_reply
from tests.service_process import running
from tests.tested_rubric import RUBRIC, reader


def test_completions_are_sampled_and_shown_over_http(ready: Cli, both: Cli, tmp_path: Path) -> None:
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


def test_export_lint_and_review_are_the_same_over_http(cli: Cli, both: Cli, rubric_file: Path) -> None:
    assert cli("rubrics", "import", rubric_file).code == 0
    assert [one["id"] for one in both("rubrics", "export").lines] == ["one", "two"]
    assert both("rubrics", "export", "second").lines[0]["prompt"] == "What is two?"
    assert both("rubrics", "lint", "first").code == 0
    ran = both("rubrics", "review", "first", "retire", "-m", "Too short.", "--json", only_there=True)
    assert (ran.code, ran.json["state"]) == (0, "retired")
    refused = both("rubrics", "review", "first", "submit")
    assert refused.code == 2 and "first@1 is retired" in refused.err
    by_ann = both("rubrics", "review", "first", "approve", "--by", "ann", only_there=True)
    assert by_ann.code == 2, "the API key says who it is"
    assert both("rubrics", "export", "first").code == 2, "no approved version"


RECORD = '{"id": "q", "prompt": "Q", "criteria": ["a\\u200b"], "completions": ["b"], "labels": {"c1": {"ann": 1}}}\n'
LABEL = '{"completion_id": 1, "rubric": "q", "criterion": "c1", "annotator": "ann", "value": 0}\n'


@pytest.fixture
def imported(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Ran]]:
    """Import a file here and into another database over HTTP; what is printed must be the same."""
    db = Database(sqlite_at(tmp_path / "remote.db"))

    def run(noun: str, *options: str, content: str, code: int = 0) -> Ran:
        (tmp_path / "rows.jsonl").write_text(content)
        for file, stdin in (("rows.jsonl", ""), ("-", content)):
            here = cli(noun, "import", file, *options, stdin=stdin)
            with running(db) as url, monkeypatch.context() as patch:
                patch.setenv("RUBRICSVC_URL", url)
                assert cli(noun, "import", file, *options, stdin=stdin) == here
            assert here.code == code, here.err
        return here

    yield run
    db.close()


def test_imports_print_the_same_over_http(imported: Callable[..., Ran]) -> None:
    ran = imported("rubrics", content=RECORD)
    assert "removed 1 invisible character" in ran.err and re.search(r"new +prompts 0", ran.out)
    ran = imported("rubrics", "--skip-invalid", "--json", content=RECORD + "{}\n")
    assert (ran.json["skipped_records"], ran.json["skipped"][0]["line"], ran.json["note_count"]) == (1, 2, 1)
    assert "skipped stdin:2" in ran.err
    assert "rows.jsonl" not in imported("rubrics", content="{}\n", code=2).out
    assert imported("completions", "--json", content=RECORD.replace('"b"', '"c"')).json["rubrics"] == []
    assert "--replace" in imported("labels", content=LABEL, code=2).err
    assert imported("labels", "--replace", "--json", content=LABEL).json["label_ids"] == [1]
    assert "no labels" in imported("labels", content='{"prompt": "Q", "criteria": ["a"]}\n', code=2).err


def test_import_at_a_service_refuses_what_is_no_file(both: Cli, tmp_path: Path) -> None:
    (tmp_path / "mapping.yaml").write_text("record: {prompt: task}\n")
    for arguments, message in (
        ([tmp_path], "Is a directory"),
        (["lost.yaml"], "No such file"),
        (["rows.jsonl", "--mapping", "mapping.yaml"], "needs the database"),
    ):
        ran = both("rubrics", "import", *arguments, only_there=True)
        assert ran.code == 2 and message in ran.err


def test_test_propose_and_generate_store_at_the_service(cli: Cli, both: Cli, tmp_path: Path) -> None:
    (tmp_path / "fridge.yaml").write_text(RUBRIC)
    assert cli("rubrics", "import", tmp_path / "fridge.yaml", "--draft").code == 0
    add_judge(cli)
    there = partial(both, only_there=True)
    with scripted_server(reader) as server:
        ran = there("rubrics", "test", "fridge", "--judge", server.url, "--json")
    assert (ran.code, ran.json["outcome"], ran.json["stored"]) == (0, "passed", 1), ran.err
    assert cli("rubrics", "show", "fridge@1", "--history", "--json").json["tests"][0]["by"] == "anonymous"
    (tmp_path / "prompts.jsonl").write_text('{"id": "sky", "prompt": "Why is the sky blue?"}\n' * 2)
    made = there("rubrics", "generate", "--judge", "quick", tmp_path / "prompts.jsonl", "--json")
    assert (made.code, made.json["kind"], made.json["progress"]["total"]) == (0, "generate", 1), made.err
    assert there("rubrics", "generate", "--judge", "quick", tmp_path / "fridge.yaml", "--prompts", 1).code == 2
    with scripted_server(writer) as server:
        ran = there("rubrics", "propose", "Why is the sky blue?", "-n", 1, "--judge", server.url, "--json")
    assert (ran.code, ran.json["candidate"]) == (0, 1), ran.err


def test_diff_is_the_same_over_http(ready: Cli, both: Cli, tmp_path: Path) -> None:
    assert ready("jobs", "submit", "--judge", "quick", "--wait").code == 0
    file = tmp_path / "first.yaml"
    file.write_text("name: first\ncriteria: [{text: Says one., weight: 3}, {text: Is rude., weight: -1}]\n")
    changed = both("rubrics", "diff", "first", file)
    assert changed.code == 1 and "weight 1 → 3" in changed.out
    compared = both("rubrics", "diff", "first", file, "--on", 1, "--json").json
    assert (compared["completions"], compared["new_missing_verdicts"]) == (1, 0)
    assert both("rubrics", "diff", "first", file, "--on", 9).code == 3
