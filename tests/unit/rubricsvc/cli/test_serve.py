"""What `rubricsvc serve` does when its worker does not start. That it works is in the integration tests."""

from __future__ import annotations

import signal

import pytest

from rubricsvc.errors import InvalidError
from tests.cli import Cli
from tests.services import free_port


def test_without_its_worker_the_service_ends(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise InvalidError("no worker today")

    monkeypatch.setattr("workers.queue.in_process.embedded_worker", broken)
    before = signal.getsignal(signal.SIGTERM)
    try:
        ran = cli("serve", "--port", free_port())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ran.code == 1
    assert "the worker did not start" in ran.err and "no worker today" in ran.err
