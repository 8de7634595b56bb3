from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli import Cli

pytestmark = pytest.mark.usefixtures("new_machine")


def test_status_and_upgrade(cli: Cli) -> None:
    ran = cli("db", "status", "--json")
    assert ran.code == 3 and ran.json["schema"] is None and "rubricsvc db upgrade" in ran.err
    assert "upgraded from nothing" in cli("db", "upgrade").err
    assert "already" in cli("db", "upgrade").err
    assert cli("db", "status", "--json").json["up_to_date"] is True


def test_looking_makes_no_file(cli: Cli, tmp_path: Path) -> None:
    assert cli("db", "status").code == 3
    assert not (tmp_path / "books" / "rubricsvc.db").exists()
    assert cli("rubric", "list").code == 0


def test_an_empty_file_is_made_a_database(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "rubricsvc.db").touch()
    ran = cli("rubric", "list")
    assert ran.code == 0 and "made a new database" in ran.err
    assert "made" not in cli("rubric", "list").err


def test_what_holds_tables_is_not_upgraded_behind_your_back(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    with closing(sqlite3.connect(tmp_path / "books" / "rubricsvc.db")) as theirs:
        theirs.execute("CREATE TABLE theirs (id INTEGER)")
    ran = cli("rubric", "list")
    assert ran.code == 3 and "hint: run `rubricsvc db upgrade`" in ran.err
