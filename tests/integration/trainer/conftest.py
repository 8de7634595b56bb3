from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Lines that the trainer logs. (`make test-unit` runs without pytest's own capturing, which costs a tenth.)"""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    trainer = logging.getLogger("trainer")
    trainer.addHandler(handler)
    yield lines
    trainer.removeHandler(handler)
