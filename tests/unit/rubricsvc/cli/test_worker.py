"""Settings that `rubricsvc worker` refuses; the rest is in tests/integration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rubricsvc.cli import main
from rubricsvc.settings import get_settings
from rubricsvc.store.session import Database


@pytest.fixture(autouse=True)
def environment(db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RUBRICSVC_DATABASE_URL", db.url)
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


def test_worker_refuses_the_in_process_broker(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["worker"]) == 2
    assert "RUBRICSVC_BROKER_URL" in capsys.readouterr().err
