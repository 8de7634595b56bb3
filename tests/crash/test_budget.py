"""`jobs wait` is killed with SIGKILL while a job with a budget runs: it completes within the budget."""

from dataclasses import replace
from pathlib import Path

import pytest

from rubricsvc.core.judge import Endpoint, Judge, Price
from rubricsvc.store import jobs
from rubricsvc.store.session import Database
from tests.rows import RUBRIC, submit_job
from tests.scripted_server import labels, scripted_server, wait_for_calls
from tests.worker_process import WorkerProcess

ITEMS = 20
KILLS = 3
PRICE = Price(prompt=10.0, completion=40.0)
COST = (100 * 10.0 + 1 * 40.0) / 1e6
"""Of one call of ``YES``; its worst case is about 0.009."""

YES = replace(labels(Yes=0.9, No=0.1), usage={"prompt_tokens": 100, "completion_tokens": 1}, delay_s=0.2)
BUDGET = 0.25


@pytest.mark.timeout(300)
def test_budget_holds_when_workers_are_killed(each_db: Database, tmp_path: Path) -> None:
    settings = {"database_url": each_db.url, "broker_url": "memory://", "lease_seconds": 3, "reconcile_seconds": 0.5}

    def start() -> WorkerProcess:
        return WorkerProcess(tmp_path / "log", str(job), command="jobs wait", **settings)

    with scripted_server(YES, remember=False) as server:
        endpoint = Endpoint(base_url=server.url, price=PRICE, max_retries=0, concurrency=2)
        job = submit_job(each_db, ITEMS, judge=Judge(name="paid", model="scripted", endpoint=endpoint))
        with each_db.write() as session:
            jobs.get(session, job).budget = BUDGET
        for _ in range(KILLS):
            worker = start()
            wait_for_calls(server, 8)
            worker.kill()
        assert start().process.wait(120) == 0, (tmp_path / "log").read_text()[-4000:]
        with each_db.read() as session:
            row, progress = jobs.get(session, job), jobs.progress(session, job)
            reserved = jobs.reserved_totals(session, job)
    assert (row.status, progress.done, progress.verdicts) == ("completed", ITEMS, ITEMS * len(RUBRIC.criteria))
    assert server.count * COST <= row.spent + 1e-9 <= BUDGET
    assert reserved.held == 0
    assert reserved.lost > 0, "no kill interrupted a call: the test did not test"
