from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli import Cli

pytestmark = pytest.mark.usefixtures("new_machine")


def test_upgrade_creates_an_absent_database_once(cli: Cli) -> None:
    first, again = cli("db", "upgrade"), cli("db", "upgrade")
    assert (first.code, again.code) == (0, 0)
    assert "from nothing" in first.err and "up to date" in again.err


def test_open_database_creates_tables_in_an_empty_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "rubricsvc.db").touch()
    ran, again = cli("rubrics", "list"), cli("rubrics", "list")
    assert (ran.code, again.code) == (0, 0)
    assert "rubricsvc.db" in ran.err and "rubricsvc.db" not in again.err


def test_open_database_does_not_upgrade_foreign_tables(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    with closing(sqlite3.connect(tmp_path / "books" / "rubricsvc.db")) as theirs:
        theirs.execute("CREATE TABLE theirs (id INTEGER)")
    ran = cli("rubrics", "list")
    assert ran.code == 3 and "`rubricsvc db upgrade`" in ran.err
