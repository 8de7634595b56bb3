"""`rubricsvc collections`, and rubrics that are generated from a collection, against a scripted model."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.cli import Cli

FACT = "The sky is blue because air scatters short waves more than long ones."
PROMPT = {
    "id": "sky",
    "prompt": "Why is the sky blue?",
    "reference": "It is blue because air scatters light. So it is.",
}


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "sky.txt").write_text(f"The sky\n\n{FACT}\n")
    (folder / "sea.html").write_text("<title>The sea</title><p>Salt. See <a href='sky.txt'>the sky</a>.")
    return folder


def test_collections_add_debian_makes_prompts_of_every_capability(cli: Cli, tmp_path: Path) -> None:
    added = cli("collections", "add", "pg", "--debian", "postgresql-doc", "--json")
    if added.code == 3:
        pytest.skip("postgresql-doc is not installed")
    assert added.code == 0 and added.json["documents"] > 1000 and added.json["links"] > 5000, added.err
    assert cli("prompts", "synthesize", "pg", "-n", "5", "--out", tmp_path / "tasks.jsonl").code == 0
    tasks = [json.loads(line) for line in (tmp_path / "tasks.jsonl").read_text().splitlines()]
    expected = dict.fromkeys(("find-links", "changes", "define"), 5)
    assert Counter(task["item"]["capability"] for task in tasks) == expected
    assert all(len(id_) < 80 for task in tasks for one in task["item"]["pages"] for id_ in one)
    page = cli("collections", "show", "pg", "app-pgdump", "--json").json
    assert not {"Next", "Prev", "Home"} & set(page["text"].split()) and "pg_dump" in page["terms"]


def test_collections_are_added_listed_searched_shown_and_deleted(cli: Cli, documents: Path) -> None:
    added = cli("collections", "add", "docs", documents, "--json")
    assert added.code == 0 and {**added.json, "documents": 2, "links": 1, "skipped": 0} == added.json, added.err
    assert cli("collections", "add", "docs", documents).code == 2
    (documents / "empty.txt").write_text(" \n")
    refused = cli("collections", "add", "docs", documents, "--replace")
    assert refused.code == 2 and "empty.txt" in refused.err
    again = cli("collections", "add", "docs", documents, "--replace", "--skip-invalid", "--json")
    assert (again.code, again.json["digest"], again.json["skipped"]) == (0, added.json["digest"], 1)
    assert [one["name"] for one in cli("collections", "list", "--json").lines] == ["docs"]
    found = cli("collections", "search", "docs", "why", "is the", "SKY*", "blue?", "--json").lines
    assert [one["id"] for one in found] == ["sky.txt", "sea.html"]
    assert cli("collections", "search", "docs", "zzz", "--json").out == ""
    page = cli("collections", "show", "docs", "sea.html", "--json").json
    assert (page["text"], page["links"]) == ("Salt. See the sky.", [{"start": 10, "end": 17, "target": "sky.txt"}])
    assert FACT in cli("collections", "show", "docs", "sky.txt").out
    undecodable = cli("collections", "show", "docs", "a\udcff")
    assert undecodable.code == 2 and "UTF-8" in undecodable.err, undecodable.err
    assert cli("collections", "delete", "docs").code == 0
    assert [cli("collections", *args).code for args in (("show", "docs"), ("delete", "docs"), ("list",))] == [3, 3, 0]


def test_prompts_synthesize_writes_what_can_be_imported(cli: Cli, tmp_path: Path) -> None:
    assert cli("collections", "add", "python", "--python").code == 0
    out = tmp_path / "tasks.jsonl"
    assert cli("prompts", "synthesize", "python", "-n", 5, "--documents", 3, "--out", out).code == 0
    made = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(made) == 15 and all(len(one["documents"]) >= 3 and one["item"]["digest"] for one in made)
    again = cli("prompts", "synthesize", "python", "-n", 5, "--documents", 3)
    assert again.out == out.read_text()
    stored = cli("rubrics", "import", out, "--draft", "--json")
    assert (stored.code, stored.json["new"]["rubrics"], stored.json["new"]["prompts"]) == (0, 15, 15), stored.err
    one = cli("prompts", "synthesize", "python", "--capability", "define", "-n", 1).lines
    assert [record["tags"] for record in one] == [["define"]]
    assert cli("prompts", "synthesize", "python", "--capability", "guess").code == 2
    assert cli("prompts", "synthesize", "none").code == 3
