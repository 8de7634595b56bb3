"""What a run reports while it works. The command line shows it; without one, messages go to the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event
from typing import Protocol

log = logging.getLogger(__name__)


class Task(Protocol):
    """A part of the work with a number of units."""

    def update(self, done: int, total: int, note: str) -> None:
        """Report that ``done`` of ``total`` units are finished."""

    def note(self, note: str) -> None:
        """Report what is done now, between two units."""


class Progress(Protocol):
    """Where a run reports to."""

    def message(self, text: str) -> None:
        """Report something that a person should read."""

    def task(self, name: str) -> AbstractContextManager[Task]:
        """Begin a part of the work."""

    def stopping(self) -> AbstractContextManager[Event]:
        """Yield the event that is set when the run should stop after its current step."""


class _Silent:
    def update(self, done: int, total: int, note: str) -> None:
        pass

    def note(self, note: str) -> None:
        pass


class Logged:
    """Logs messages."""

    def message(self, text: str) -> None:
        """Log a message."""
        log.info("%s", text)

    @contextmanager
    def task(self, name: str) -> Iterator[Task]:
        """Show nothing."""
        yield _Silent()

    @contextmanager
    def stopping(self) -> Iterator[Event]:
        """Yield an event that nothing sets."""
        yield Event()
