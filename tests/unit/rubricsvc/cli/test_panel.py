from __future__ import annotations

import json

import pytest

from tests.cli import Cli

pytestmark = pytest.mark.integration


@pytest.fixture
def two(cli: Cli) -> Cli:
    for name in ("a", "b"):
        assert cli("judge", "add", name, "--model", name, "--url", "http://127.0.0.1:9/v1", "--no-probe").code == 0
    return cli


def test_judges_are_made_of_judges_that_are_there(two: Cli) -> None:
    assert two("judge", "panel", "p", "a", "b", "--vote", "min").code == 0
    assert two("judge", "cascade", "c", "a", "p", "--band", "0.2", "0.6").code == 0
    kept = json.loads(two("judge", "show", "c", "--json").out)["judge"]
    assert (kept["mode"], kept["band"]) == ("cascade", [0.2, 0.6])
    assert [member["name"] for member in kept["members"]] == ["a", "p"]
    assert kept["members"][1]["voting"]["rule"] == "min"
    assert kept["members"][0]["endpoint"]["base_url"] == "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["panel", "p", "a", "none"], "none"),
        (["panel", "p", "a"], "two or more members"),
        (["panel", "p", "a", "a"], "duplicate member's name"),
        (["panel", "p", "a", "b", "--vote", "loudest"], "'majority'"),
        (["cascade", "c", "a", "b", "--band", "0.9", "0.1"], "the lower one first"),
    ],
)
def test_bad_members(two: Cli, args: list[str], words: str) -> None:
    ran = two("judge", *args)
    assert ran.code != 0
    assert words in ran.err


def test_a_panel_is_listed_by_its_members_names_and_has_no_engine(two: Cli) -> None:
    two("judge", "panel", "p", "a", "b")
    *plain, panel = two("judge", "list").out.splitlines()[1:]
    assert "a, b" in panel and "openai_http" not in panel
    assert all("openai_http" in line and "[]" not in line for line in plain)
    shown = dict(line.split(None, 1) for line in two("judge", "show", "p").out.splitlines())
    assert shown["members"] == "a, b" and not {"engine", "model"} & shown.keys()
