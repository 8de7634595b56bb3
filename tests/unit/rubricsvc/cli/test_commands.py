"""Options and transactions of all import commands."""

from __future__ import annotations

import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rubricsvc.errors import UnauthorizedError
from rubricsvc.formats import FORMATS
from rubricsvc.settings import get_settings
from rubricsvc.store import keys
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import KeyRow
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


def test_serve_refuses_a_busy_port_and_worker_the_in_process_broker(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        result = cli("serve", "--port", str(busy.getsockname()[1]))
    assert result.code == 2 and "--port" in result.err
    result = cli("worker")
    assert result.code == 2 and "RUBRICSVC_BROKER_URL" in result.err


def test_key_is_valid_from_create_to_revoke(cli: Cli) -> None:
    secret = cli("keys", "create", "trainer", "--expires-in", "30").out.strip()
    with closing(Database(get_settings().database_url)) as db:
        with db.read() as session:
            key = keys.verify(session, secret)
        assert key.expires_at is not None
        assert (key.expires_at - key.created_at).days in {29, 30}
        listed = cli("keys", "list", "--json")
        assert secret not in listed.out and listed.json["name"] == "trainer"
        assert cli("keys", "revoke", key.id).code == 0
        with db.read() as session, pytest.raises(UnauthorizedError):
            keys.verify(session, secret)
        unknown = cli("keys", "revoke", 9)
        assert unknown.code == 3 and "rubricsvc keys list" in unknown.err
        for name in ("", "  ", "x" * 5000):
            ran = cli("keys", "create", name)
            assert (ran.code, ran.out) == (2, "")
        with db.read() as session:
            assert len(page_of(session, KeyRow, 0, 50)) == 1


@pytest.mark.usefixtures("new_machine")
def test_database_is_created_where_there_is_none_and_foreign_tables_are_left(cli: Cli, tmp_path: Path) -> None:
    first, again = cli("db", "upgrade"), cli("db", "upgrade")
    assert (first.code, again.code) == (0, 0)
    assert "from nothing" in first.err and "up to date" in again.err
    file = tmp_path / "books" / "rubricsvc.db"
    file.unlink()
    file.touch()
    ran, again = cli("rubrics", "list"), cli("rubrics", "list")
    assert (ran.code, again.code) == (0, 0)
    assert "rubricsvc.db" in ran.err and "rubricsvc.db" not in again.err
    file.unlink()
    with closing(sqlite3.connect(file)) as theirs:
        theirs.execute("CREATE TABLE theirs (id INTEGER)")
    ran = cli("rubrics", "list")
    assert ran.code == 3 and "`rubricsvc db upgrade`" in ran.err
