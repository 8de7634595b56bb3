"""What is learned of a judge's server outlives a drain: each test runs several drains, as the tasks do."""

import threading
import time
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.settings import Settings
from rubricsvc.store import jobs
from rubricsvc.store.session import Database
from tests.instant_engine import InstantEngine
from tests.rows import submit_job
from tests.scripted_server import ScriptedServer, labels, scripted_server
from workers.engines import ENGINES
from workers.engines.base import Engine, EngineRequest, Failure, Reply
from workers.queue.drain import Drainer
from workers.queue.engine_pool import EnginePool

ONE = Rubric(criteria=(Criterion(key="met", text="Is good."),))
YES = labels(Yes=0.9, No=0.1)


@pytest.fixture
def kept() -> Iterator[EnginePool]:
    made = EnginePool()
    yield made
    made.close()


def drain(db: Database, kept: EnginePool | None, stopping: threading.Event | None = None) -> None:
    """In a separate thread, as a worker's pool has them."""
    settings = Settings.model_validate({"database_url": db.url, "heartbeat_seconds": 0.05})
    thread = threading.Thread(target=lambda: Drainer(db, settings, stopping, kept).run(1))
    thread.start()
    thread.join()


def waits_in_another_drain(db: Database, kept: EnginePool, judge: Judge, server: ScriptedServer) -> bool:
    """Whether none of its calls is begun."""
    before = server.count
    job = submit_job(db, 8, judge=judge, rubric=ONE, key="second")
    stopping = threading.Event()

    def stop_once_it_waits() -> None:
        for _ in range(400):
            with db.read() as session:
                if jobs.progress(session, job).leased:
                    break
            time.sleep(0.02)
        time.sleep(0.3)
        stopping.set()

    threading.Thread(target=stop_once_it_waits).start()
    with patch("workers.queue.drain.GRACE_SECONDS", 0.1):
        drain(db, kept, stopping)
    return server.count == before


def test_pool_keeps_minute_counts_between_drains(db: Database, kept: EnginePool) -> None:
    with scripted_server(YES) as server:
        endpoint = Endpoint(base_url=server.url, requests_per_minute=4)
        judge = Judge(name="http", model="scripted", endpoint=endpoint)
        submit_job(db, 4, judge=judge, rubric=ONE, key="first")
        drain(db, kept)
        assert waits_in_another_drain(db, kept, judge, server) and server.count == 4


def test_pool_keys_engines_by_judge_and_endpoint(kept: EnginePool) -> None:
    async def itself(engine: Engine) -> Engine:
        return engine

    judge = Judge(name="j", model="m", endpoint=Endpoint(base_url="http://127.0.0.1:9/v1"))
    moved = judge.model_copy(update={"endpoint": Endpoint(base_url="http://127.0.0.1:10/v1")})
    first = kept.run(judge, itself)
    assert kept.run(judge, itself) is first and kept.run(moved, itself) is not first
    with patch("workers.queue.engine_pool.IDLE_SECONDS", -1.0):
        kept.run(moved, itself)  # all that are idle for so long go
    assert kept.run(judge, itself) is not first


def test_pool_keeps_models_until_it_is_closed(kept: EnginePool) -> None:
    """Those of local engines: connections are closed after each drain all the same."""

    class Counts(InstantEngine):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    async def ask(engine: Engine) -> list[Reply | Failure]:
        return await engine.ask(EngineRequest("", "", ()))

    local, remote = Counts(), Counts()
    kept.keep_models = True
    with patch.dict(ENGINES, {"transformers_local": lambda _judge: local, "openai_http": lambda _judge: remote}):
        for name in ("transformers_local", "openai_http"):
            for _ in range(2):
                kept.run(Judge(name=name, engine=name, model="m"), ask)
        assert (local.closed, remote.closed) == (0, 2)
        kept.close()
    assert (local.closed, remote.closed) == (1, 2)
