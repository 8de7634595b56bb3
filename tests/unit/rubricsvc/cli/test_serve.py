"""`rubricsvc serve` without its worker; the rest is in tests/integration."""

from __future__ import annotations

import signal

import pytest

from rubricsvc.errors import InvalidError
from tests.cli import Cli
from tests.services import free_port


def test_serve_exits_with_1_if_its_worker_fails(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise InvalidError("no worker today")

    monkeypatch.setattr("workers.queue.in_process.embedded_worker", fail)
    before = signal.getsignal(signal.SIGTERM)
    try:
        ran = cli("serve", "--port", free_port())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ran.code == 1
    assert "no worker today" in ran.err
