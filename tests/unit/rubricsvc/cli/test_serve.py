"""Addresses that `rubricsvc serve` refuses; the rest is in tests/integration."""

from __future__ import annotations

import socket

from tests.cli import Cli


def test_serve_refuses_a_busy_port(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        result = cli("serve", "--port", str(busy.getsockname()[1]))
    assert result.code == 2
    assert "--port" in result.err
