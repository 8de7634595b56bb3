"""Imports print the same at RUBRICSVC_URL as with a database of their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rubricsvc.settings import get_settings
from rubricsvc.store.session import Database
from tests.cli import Cli, Ran
from tests.databases import sqlite_at
from tests.service_process import running

RECORD = '{"id": "q", "prompt": "Q", "criteria": ["a\\u200b"], "completions": ["b"], "labels": {"c1": {"ann": 1}}}\n'
LABEL = '{"completion_id": 1, "rubric": "q", "criterion": "c1", "annotator": "ann", "value": 0}\n'


@pytest.fixture
def both(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Ran]]:
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


def test_imports_print_the_same_over_http(both: Callable[..., Ran]) -> None:
    ran = both("rubrics", content=RECORD)
    assert "removed 1 invisible character" in ran.err and re.search(r"new +prompts 0", ran.out)
    ran = both("rubrics", "--skip-invalid", "--json", content=RECORD + "{}\n")
    assert (ran.json["skipped_records"], ran.json["skipped"][0]["line"], ran.json["note_count"]) == (1, 2, 1)
    assert "skipped stdin:2" in ran.err
    assert "rows.jsonl" not in both("rubrics", content="{}\n", code=2).out
    assert both("completions", "--json", content=RECORD.replace('"b"', '"c"')).json["rubrics"] == []
    assert "--replace" in both("labels", content=LABEL, code=2).err
    assert both("labels", "--replace", "--json", content=LABEL).json["label_ids"] == [1]
    assert "no labels" in both("labels", content='{"prompt": "Q", "criteria": ["a"]}\n', code=2).err


def test_import_at_a_service_refuses_what_is_no_file(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = Database(get_settings().database_url)
    (tmp_path / "mapping.yaml").write_text("record: {prompt: task}\n")
    with running(db) as url:
        monkeypatch.setenv("RUBRICSVC_URL", url)
        for arguments, message in (
            ([tmp_path], "Is a directory"),
            (["lost.yaml"], "No such file"),
            (["rows.jsonl", "--mapping", "mapping.yaml"], "reads no file by a --mapping"),
        ):
            ran = cli("rubrics", "import", *arguments)
            assert ran.code == 2 and message in ran.err
    db.close()
