"""Celery as it is set up here."""

from __future__ import annotations

import pytest

from rubricsvc.broker import make_celery
from rubricsvc.settings import Settings


def test_a_worker_in_memory_looks_up_often_enough_to_see_that_it_is_to_stop() -> None:
    """An hour's silence ends the listening, not the test run."""
    with make_celery(Settings(broker_url="memory://")).connection() as connection:
        connection.default_channel.queue_declare("nothing-comes")
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=3600.0)
