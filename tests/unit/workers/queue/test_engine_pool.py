"""What is learned of a judge's server outlives a drain: each test runs several drains, as the tasks do."""

import threading
import time
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.settings import Settings
from rubricsvc.store.session import Database
from tests.instant_engine import InstantEngine
from tests.rows import progress_of, submit_job
from tests.scripted_server import labels, scripted_server
from tests.services import wait_for
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


def test_rate_holds_over_drains_at_once_and_later(db: Database, kept: EnginePool) -> None:
    """Of this pool, whose engine keeps its count, and of other workers: what they began counts for a minute."""
    settings = Settings.model_validate({"database_url": db.url, "heartbeat_seconds": 0.05, "claim_size": 8})
    soon = patch("workers.engines.http.throttle._RECHECK_S", 0.05)
    with scripted_server(YES) as server, soon, patch("workers.queue.drain.GRACE_SECONDS", 0.1):
        endpoint = Endpoint(base_url=server.url, requests_per_minute=6, concurrency=8)
        job = submit_job(db, 60, judge=Judge(name="http", model="scripted", endpoint=endpoint), rubric=ONE)
        for pools in ([kept, None, None], [kept], [None]):
            stopping = threading.Event()
            drains = [Drainer(db, settings, stopping, pool) for pool in pools]
            threads = [threading.Thread(target=one.run, args=(1,), daemon=True) for one in drains]
            for thread in threads:
                thread.start()
            wait_for(lambda: server.count >= 6 and all(one.in_flight for one in drains))  # noqa: B023
            time.sleep(0.5)  # some heartbeats of all
            stopping.set()
            for thread in threads:
                thread.join()
            assert (server.count, progress_of(db, job).done) == (6, 6)


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
