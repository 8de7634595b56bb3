"""Notices of a missing worker while a job waits."""

from __future__ import annotations

from rubricsvc.core.worker_watch import REMIND_SECONDS, WorkerWatch


def test_worker_watch_reminds_until_a_worker_runs() -> None:
    watch = WorkerWatch()
    notices = [
        watch.notice(workers, at)
        for workers, at in (
            (0, 5.0),
            (0, 6.0),
            (0, 5.0 + REMIND_SECONDS),
            (1, 70.0),
            (2, 71.0),
            (0, 72.0),
        )
    ]
    assert notices == ["missing", None, "missing", "back", None, "missing"]
    assert WorkerWatch().notice(1, 0.0) is None
