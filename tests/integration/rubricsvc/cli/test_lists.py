"""Paging of every list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli import Cli, add_judge

NOUNS = ("prompt", "rubric", "completion", "label", "judge", "job", "verdict", "key")


@pytest.fixture
def filled(cli: Cli, tmp_path: Path) -> Cli:
    """Store two rows of every noun."""
    records = [
        {"prompt": f"Why {n}?", "criteria": ["Is so."], "completions": ["Because."], "labels": {"c1": n}}
        for n in (0, 1)
    ]
    (tmp_path / "two.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert cli("labels", "import", "two.jsonl").code == 0
    for name in ("a", "b"):
        add_judge(cli, name, model=name)
        assert cli("jobs", "submit", "--judge", name, "--limit", 1, "--wait").code == 0
        assert cli("keys", "create", name).code == 0
    return cli


def test_lists_hint_how_to_continue(filled: Cli) -> None:
    for noun in NOUNS:
        for form in ((), ("--json",)):
            first = filled(noun, "list", "--limit", 1, *form)
            assert first.code == 0
            assert "--after 1" in first.err and "--limit" in first.err, noun
        assert [row["id"] for row in first.lines] == [1]
        rest = filled(noun, "list", "--after", 1, "--limit", 1, "--json")
        assert [row["id"] for row in rest.lines] == [2] and rest.err == "", noun
