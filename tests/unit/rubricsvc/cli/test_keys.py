"""`rubricsvc keys`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rubricsvc.cli import main
from rubricsvc.errors import UnauthorizedError
from rubricsvc.settings import get_settings
from rubricsvc.store import keys
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import KeyRow


@pytest.fixture(autouse=True)
def environment(db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RUBRICSVC_DATABASE_URL", db.url)
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


def test_key_is_valid_from_create_to_revoke(db: Database, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["keys", "create", "trainer", "--expires-in", "30"]) == 0
    secret = capsys.readouterr().out.strip()
    with db.read() as session:
        key = keys.verify(session, secret)
    assert key.expires_at is not None
    assert (key.expires_at - key.created_at).days in {29, 30}
    assert main.run(["keys", "list", "--json"]) == 0
    listed = capsys.readouterr().out
    assert secret not in listed
    assert json.loads(listed)["name"] == "trainer"
    assert main.run(["keys", "revoke", str(key.id)]) == 0
    with db.read() as session, pytest.raises(UnauthorizedError):
        keys.verify(session, secret)


def test_create_refuses_invalid_names(db: Database, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("", "  ", "x" * 5000):
        assert main.run(["keys", "create", name]) == 2
        assert not capsys.readouterr().out
    with db.read() as session:
        assert page_of(session, KeyRow, 0, 50) == []


def test_revoke_of_an_unknown_key_exits_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["keys", "revoke", "9"]) == 3
    assert "rubricsvc keys list" in capsys.readouterr().err
