"""Options and transactions of all import commands."""

from __future__ import annotations

import pytest

from rubricsvc.formats import FORMATS
from tests.cli import Cli

NOUNS = ("rubric", "label", "completion")


def test_import_help_names_every_format(cli: Cli) -> None:
    for noun in NOUNS:
        options = " ".join(cli(noun, "import", "--help").out.split())
        alone = "completions, " if noun == "completion" else ""
        assert f"{alone}{', '.join(FORMATS)}." in options


@pytest.mark.parametrize("noun", NOUNS)
def test_import_with_an_invalid_record_stores_nothing(cli: Cli, noun: str) -> None:
    good = '{"prompt": "q", "criteria": ["a"], "completions": ["b"], "labels": {"c1": 1}}\n'
    ran = cli(noun, "import", "-", stdin=good + '{"prompt": 5, "criteria": ["a"]}')
    assert ran.code == 2 and ran.out == "" and "<stdin>:2: prompt: " in ran.err
    assert cli("prompts", "list", "--json").out == ""
    ran = cli(noun, "import", "-", "--skip-invalid", "--json", stdin=good + '{"prompt": 5, "criteria": ["a"]}')
    assert ran.code == 0 and ran.json["new"]["prompts"] == 1 and [one["line"] for one in ran.json["skipped"]] == [2]
