"""`judges passport`, and `judges add --passport`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubricsvc.formats.documents import dump_passport
from tests.cli import Cli, add_judge
from tests.made_passport import made_passport


@pytest.fixture
def passport(tmp_path: Path) -> Path:
    path = tmp_path / "passport.json"
    with path.open("w") as stream:
        dump_passport(made_passport(), stream)
    return path


def test_add_stores_the_passport_with_the_judge(cli: Cli, passport: Path) -> None:
    add_judge(cli, "quick", "--passport", passport)
    whole = made_passport().model_dump(mode="json")
    shown = cli("judges", "show", "quick", "--json").json
    assert shown["has_passport"] is True
    assert cli("judges", "passport", "quick", "--json").json == whole
    assert cli("judges", "list", "--json").json["has_passport"] is True
    text = cli("judges", "show", "quick").out
    assert "auroc 0.940 [0.93, 0.95] (bag of words 0.820);" in text and "Texts in languages" in text
    add_judge(cli, "quick")
    assert cli("judges", "passport", "quick", "--json").json == whole


def test_passport_prints_tables(cli: Cli, passport: Path) -> None:
    add_judge(cli, "quick", "--passport", passport)
    out = cli("judges", "passport", "quick").out
    assert all(
        text in out
        for text in ("bag of words", "CC-BY-4.0", "0.275", "Texts in languages", "0.090 [0.08, 0.10]", "0.0042")
    )
