"""`rubricsvc serve` and `rubricsvc worker` as a user starts them: processes, sockets, signals."""

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from rubricsvc.client import Client
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.settings import Settings
from rubricsvc.store import jobs
from rubricsvc.store.session import Database, attach
from tests.databases import fresh_url
from tests.rows import progress_of, submit_job
from tests.scripted_server import ScriptedReply, labels, scripted_server
from tests.service_process import TIMEOUT, command, service
from tests.services import RABBITMQ, rabbitmq, wait_for
from tests.worker_process import redis_url

RUBRIC = Rubric(criteria=[Criterion(key="a", text="Says a."), Criterion(key="b", text="Says b.")])


def judge(url: str) -> Judge:
    return Judge(name="scripted", model="scripted", endpoint=Endpoint(base_url=url, max_retries=0, concurrency=4))


def test_serve_creates_the_database_scores_and_stops(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new' / 'books.db'}"
    with (
        scripted_server(labels(Yes=0.75, No=0.25)) as server,
        service(tmp_path, url) as address,
        Client(address) as client,
    ):
        scored = client.score("Why?", RUBRIC, [f"answer {n}" for n in range(20)], judge(server.url), timeout=TIMEOUT)
    assert [answer.reward for answer in scored] == [pytest.approx(0.75, abs=1e-6)] * 20
    assert server.count == 40


def test_serve_releases_its_leases_on_a_signal(tmp_path: Path, db: Database) -> None:
    slow = scripted_server(ScriptedReply(delay_s=300.0))
    with slow as server, service(tmp_path, db.url) as address, Client(address) as client:
        prompt = client.prompts.add("Why?")
        ids = client.completions.add(prompt.id, ["one", "two", "three"]).ids
        client.rubrics.add(RUBRIC, "r")
        client.judges.add(judge(server.url))
        job = client.jobs.submit(judge="scripted", items=[{"completion_id": id_, "rubric": "r"} for id_ in ids])
        wait_for(lambda: progress_of(db, job.id).leased == 3)
    progress = progress_of(db, job.id)
    assert (progress.pending, progress.leased, progress.verdicts) == (3, 0, 0)


@contextlib.contextmanager
def broker(kind: str) -> Iterator[str]:
    """The URL of a broker that nobody else uses: a database of the test run's Redis, or a RabbitMQ of its own."""
    if kind == "redis":
        yield redis_url()
    elif RABBITMQ.exists():
        with rabbitmq() as url:
            yield url
    else:
        pytest.skip("needs RabbitMQ: install it, for example: sudo apt-get install rabbitmq-server")


@pytest.mark.parametrize(
    ("kind", "pool", "by"),
    [("sqlite", "threads", "redis"), ("postgresql", "prefork", "redis"), ("sqlite", "prefork", "rabbitmq")],
)
def test_workers_score_for_a_service_without_worker(tmp_path: Path, kind: str, pool: str, by: str) -> None:
    url = fresh_url(kind, tmp_path)
    with (
        broker(by) as broker_url,
        scripted_server(labels(Yes=0.75, No=0.25)) as server,
        service(tmp_path, url, broker_url=broker_url) as address,
        command(tmp_path / "worker.log", "worker", f"--pool={pool}", database_url=url, broker_url=broker_url),
        Client(address) as client,
    ):
        assert httpx2.get(f"{address}/readyz").status_code == 200
        texts = [f"answer {n}" for n in range(50)]
        scored = client.score("Why?", RUBRIC, texts, judge(server.url), timeout=TIMEOUT)
    assert [answer.reward for answer in scored] == [pytest.approx(0.75, abs=1e-6)] * 50


@pytest.mark.parametrize(("pool", "by"), [("prefork", "redis"), ("threads", "redis"), ("prefork", "rabbitmq")])
def test_worker_releases_its_leases_when_stopped(tmp_path: Path, db: Database, pool: str, by: str) -> None:
    """Its judge answers after five minutes: a worker that waited for it would not end in time."""
    log = tmp_path / "worker.log"
    with broker(by) as broker_url, scripted_server(ScriptedReply(delay_s=300.0)) as server:
        attach(db, Settings(database_url=db.url, broker_url=broker_url))
        job = submit_job(db, 40, judge=judge(server.url))
        arguments = ("worker", "--concurrency=2", f"--pool={pool}")
        with command(log, *arguments, database_url=db.url, broker_url=broker_url):
            wait_for(lambda: progress_of(db, job).leased > 0 and server.count > 0)
        stopped = progress_of(db, job)
        assert (stopped.pending, stopped.leased, stopped.verdicts) == (40, 0, 0)
        server.script = labels(Yes=0.75, No=0.25)
        with command(log, *arguments, database_url=db.url, broker_url=broker_url):
            wait_for(lambda: progress_of(db, job).finished == 40)
    ended = progress_of(db, job)
    assert (ended.done, ended.verdicts, ended.failed_verdicts) == (40, 120, 0)
    with db.read() as session:
        assert {row.lost for row in jobs.items(session, job)} == {0}, "a stop is no loss"


def test_serve_answers_the_requests_of_the_readme(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    curls = [shlex.split(line) for line in re.findall(r"^\$ curl -s (?:--retry.* )?(http.*)$", readme, re.M)]
    code = re.findall(r"```python\n(.*?)```", readme, re.S)[1]
    with (
        scripted_server(labels(Yes=0.75, No=0.25)) as server,
        service(tmp_path, f"sqlite:///{tmp_path / 'books.db'}") as address,
        Client(address) as client,
    ):
        for name in ("embedded", "strong"):
            client.judges.add(judge(server.url).model_copy(update={"name": name}))
        client.rubrics.add(RUBRIC, "vaccine-storage")
        client.completions.add(client.prompts.add("Why?").id, ["So."])
        for url, *body in curls:
            method, content = ("POST", body[1]) if body else ("GET", None)
            headers = {"Content-Type": "application/json"} if body else {}
            here = url.replace("http://127.0.0.1:8321", address)
            answer = httpx2.request(method, here, content=content, headers=headers)
            assert answer.is_success, answer.text
        assert [item["completion_id"] for item in answer.json()["data"]] == [1]
        exec(code.replace("Client()", f"Client({address!r})"), {"rubric": RUBRIC})
    assert capsys.readouterr().out == "0.75 1.0\n" * 2
