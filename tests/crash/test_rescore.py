"""`jobs rescore --wait` is killed with SIGKILL: the new questions alone are asked, and no stored verdict is touched."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import func, select

from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.rubric import Criterion
from rubricsvc.settings import Settings
from rubricsvc.store import jobs, rubrics
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import ItemRow, JobRow, VerdictRow
from tests.rows import RUBRIC, submit_job
from tests.scripted_server import labels, scripted_server, wait_for_calls
from tests.worker_process import WorkerProcess
from workers.queue.drain import Drainer

ITEMS = 30
KILLS = 3
CRITERIA = len(RUBRIC.criteria)
EDITED = RUBRIC.model_copy(
    update={"criteria": (Criterion(key="c1", text="Says another thing."), *RUBRIC.criteria[1:]), "min_coverage": 0.5}
)


def stored(db: Database) -> dict[int, tuple[object, ...]]:
    """The verdicts by id."""
    columns = (VerdictRow.completion_id, VerdictRow.fingerprint, VerdictRow.attempts, VerdictRow.created_at)
    with db.read() as session:
        return {id_: tuple(rest) for id_, *rest in session.execute(select(VerdictRow.id, *columns))}


@pytest.mark.timeout(300)
def test_rescore_asks_new_questions_once_when_killed(each_db: Database, tmp_path: Path) -> None:
    settings = {"database_url": each_db.url, "broker_url": "memory://", "lease_seconds": 3, "reconcile_seconds": 0.5}
    with scripted_server(labels(Yes=0.9, No=0.1)) as server:
        judge = Judge(name="j", model="scripted", endpoint=Endpoint(base_url=server.url, max_retries=0, concurrency=2))
        old_job = submit_job(each_db, ITEMS, judge=judge)
        Drainer(each_db, Settings.model_validate(settings)).run(1)
        before, asked = stored(each_db), server.count
        with each_db.write() as session:
            rubrics.add(session, EDITED, name="test", prompt_id=1)
        server.script = replace(labels(Yes=0.9, No=0.1), delay_s=0.2)
        for kill in range(KILLS + 1):
            worker = WorkerProcess(tmp_path / "log", str(old_job), "--wait", command="jobs rescore", **settings)
            if kill < KILLS:
                wait_for_calls(server, 5)
                worker.kill()
        assert worker.process.wait(120) == 0, (tmp_path / "log").read_text()[-4000:]
        new_calls = [json.dumps(body) for body in server.requests[asked:]]
    after = stored(each_db)
    with each_db.read() as session:
        new_job = page_of(session, JobRow, after=old_job)[0]
        progress = jobs.progress(session, new_job.id)
        lost = session.scalar(select(func.sum(ItemRow.lost)).where(ItemRow.job_id == new_job.id)) or 0
    assert (new_job.status, progress.done, progress.verdicts) == ("completed", ITEMS, ITEMS * CRITERIA)
    assert after.items() >= before.items()
    assert len(after) == len({(completion, name) for completion, name, *_ in after.values()}) == ITEMS * (CRITERIA + 1)
    assert all("Says another thing." in call for call in new_calls)
    assert ITEMS <= len(new_calls) <= ITEMS + lost
    assert lost > 0, "no kill interrupted a call: the test did not test"
