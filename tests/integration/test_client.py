"""The client against a real service."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import httpx2
import pytest

from rubricsvc.client import AsyncClient, Client, transport
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Label
from rubricsvc.errors import InvalidError, NotFoundError, RubricsvcError, UnauthorizedError
from rubricsvc.schemas.jobs import NewRewards, StoredJob
from rubricsvc.store import keys
from rubricsvc.store.session import Database
from tests.instant_engine import InstantEngine, agreeable
from tests.service_process import drained, running
from tests.services import free_port
from workers import engines
from workers.engines.base import Failure

RUBRIC = Rubric(
    criteria=[Criterion(key="a", text="Says a.", weight=3), Criterion(key="pit", text="Is wrong.", weight=-1)]
)
JUDGE = Judge(name="instant", engine="instant", model="m", mode="written")


@pytest.fixture
def url(db: Database) -> Iterator[str]:
    with running(db) as address:
        yield address


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as made:
        yield made


@pytest.fixture
def worker(db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[InstantEngine]:
    """The engine of a worker of this process."""
    engine = InstantEngine()
    monkeypatch.setitem(engines.ENGINES, "instant", lambda _judge: engine)
    with drained(db):
        yield engine


def test_client_methods_round_trip(client: Client) -> None:
    prompt = client.prompts.add("Why?", external_id="a/b c")
    assert client.prompts.get(prompt.id) == client.prompts.get("a/b c") == prompt
    assert client.rubrics.lint(RUBRIC, prompt.prompt, rules=["sign"]).findings == ()
    rubric = client.rubrics.add(RUBRIC, "my rubric", prompt_id=prompt.id)
    assert client.rubrics.get("my rubric@1") == rubric
    assert rubric.rubric == RUBRIC
    (id_,) = client.completions.add(
        prompt.id, [Completion(text="é\n\u202e", policy="p", step=3, sampling={"t": 0.5})]
    ).ids
    assert client.completions.get(id_).completion.sampling == {"t": 0.5}
    judge = client.judges.add(JUDGE)
    assert client.judges.get("instant").judge == JUDGE
    job = client.jobs.submit(judge=judge.id, items=[{"completion_id": id_, "rubric": rubric.id}], name="n", key="k")
    again = {"judge": "instant", "items": [{"completion_id": id_, "rubric": "my rubric"}]}
    assert client.jobs.submit(**again, key="k").id == job.id
    other = client.jobs.submit(**again).id
    assert client.jobs.cancel(job.id).status == "cancelled"
    assert client.jobs.retry(job.id).reopened == 1
    assert client.jobs.rescore(job.id, rubric=["my rubric@1"]).id == job.id
    assert [row.id for row in client.jobs.page(status="queued").data] == [1, other]
    (item,) = client.jobs.items(job.id).data
    assert (item.completion_id, item.state, item.reward) == (id_, "pending", None)
    compared = client.jobs.compare(job.id, b=other, by="completion")
    assert (compared.left_out, compared.mean_difference.value) == ({f"unfinished in job 1 and {other}": 1}, None)
    report = client.jobs.report(job.id, completions=1)
    assert report.startswith("<!doctype html>") and "my rubric@1" in report
    assert client.jobs.get(job.id).summary is None
    assert (now := client.jobs.get(job.id, summary=True).summary)
    assert (now.rewards, now.voting) == (0, {})
    assert client.verdicts.page(job_id=job.id).data == ()
    label = Label(criterion="pit", annotator="ann", value=None, note="cannot tell")
    assert client.labels.add([(id_, "my rubric", label), (id_, rubric.id, label)]).ids == (1, 1)
    assert [row.label for row in client.labels.page(annotator="ann").data] == [label]


def test_client_score_returns_rewards(client: Client, worker: InstantEngine) -> None:
    seen: list[StoredJob] = []
    scored = client.score("Why?", RUBRIC, ["one", "two", "one"], JUDGE, timeout=60, on_progress=seen.append)
    assert [answer.reward for answer in scored] == [pytest.approx(2 / 3)] * 3
    assert [verdict.criterion for verdict in scored[0].verdicts] == ["a", "pit"]
    assert scored[0].completion_id == scored[2].completion_id != scored[1].completion_id
    assert seen[-1].status == "completed"
    again = client.score("Why?", RUBRIC, ["two"], "instant", timeout=60)  # by the judge's name, from what is known
    assert again[0].reward == scored[1].reward


def test_client_sends_key(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with db.write() as session:
        _, secret = keys.create(session, "test")
    with running(db, require_key=True) as url:
        with Client(url) as client, pytest.raises(UnauthorizedError):
            client.prompts.page()
        with Client(url, api_key=secret) as client:
            assert client.prompts.page().data == ()
        monkeypatch.setenv("RUBRICSVC_API_KEY", secret)
        with Client(url) as client:
            assert client.prompts.page().data == ()


def test_async_client_round_trip(url: str, worker: InstantEngine) -> None:
    async def trip() -> None:
        async with AsyncClient(url) as client:
            scored = await client.score("Why?", RUBRIC, ["one", "two"], JUDGE, timeout=60)
            assert [answer.reward for answer in scored] == [pytest.approx(2 / 3)] * 2
            rows = [row.verdict.criterion async for row in client.iterate(client.verdicts.page, limit=1)]
            assert sorted(rows) == ["a", "a", "pit", "pit"]
            with pytest.raises(NotFoundError):
                await client.prompts.get(99)
            both = await asyncio.gather(client.prompts.get(1), client.rubrics.get(1))
            assert both[1].rubric == RUBRIC

    asyncio.run(trip())


class Answers(httpx2.BaseTransport):
    """Gives the answers of a list, one after the other, and keeps the requests."""

    def __init__(self, *answers: httpx2.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx2.Request] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was slept, instead of sleeping: the clock is put forward."""
    seconds: list[float] = []
    monotonic = time.monotonic
    monkeypatch.setattr(time, "sleep", seconds.append)
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + sum(seconds))
    return seconds


EMPTY = {"data": [], "next": None}


def test_client_retries_transient_errors(slept: list[float]) -> None:
    transport = Answers(
        httpx2.ConnectError("refused"),
        httpx2.Response(503, headers={"Retry-After": formatdate(time.time() + 3, usegmt=True)}),
        httpx2.Response(429, headers={"Retry-After": "garbage"}),
        httpx2.ReadTimeout("slow"),
        httpx2.Response(200, json=EMPTY),
    )
    assert Client(transport=transport).prompts.page().data == ()
    assert len(transport.requests) == 5
    assert slept[1] == pytest.approx(3.0, abs=1.5)  # a date, in whole seconds
    assert all(0 < seconds < 2 for seconds in (slept[0], slept[2], slept[3]))


def test_client_retry_sends_same_idempotency_key(slept: list[float]) -> None:
    transport = Answers(httpx2.ConnectError("lost"), httpx2.ReadError("lost"), httpx2.Response(404, text="nothing"))
    with pytest.raises(RubricsvcError, match="nothing"):
        Client(transport=transport).rewards.submit(judge="j", prompts=("Why?",), completions=(("So.",),))
    sent = [json.loads(request.content)["key"] for request in transport.requests]
    assert len(sent) == 3
    assert len(set(sent)) == 1
    other = Answers(httpx2.Response(404))
    with pytest.raises(RubricsvcError):
        Client(transport=other).rewards.submit(judge="j", prompts=("Why?",), completions=(("So.",),))
    assert json.loads(other.requests[0].content)["key"] not in (None, sent[0])


def test_client_waits_for_a_service_that_is_started_again(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    port, warned = free_port(), threading.Event()
    monkeypatch.setattr(transport.log, "warning", lambda *_: warned.set())
    with Client(f"http://127.0.0.1:{port}") as client:
        with running(db, at_port=port):
            client.prompts.add("Why?")
        texts: list[str] = []
        reads = threading.Thread(target=lambda: texts.append(client.prompts.get(1).prompt.text))
        reads.start()
        assert warned.wait(60)
        with running(db, at_port=port):
            reads.join(60)
    assert texts == ["Why?"]


def test_client_does_not_retry_other_errors(slept: list[float]) -> None:
    for status in (400, 401, 404, 409, 422, 500):
        transport = Answers(httpx2.Response(status, json={"error": {"code": "new_code", "message": "m"}}))
        with pytest.raises(RubricsvcError, match="m") as caught:
            Client(transport=transport).prompts.page()
        assert (caught.value.code, caught.value.status) == ("new_code", status)
    assert slept == []


def test_client_error_of_restores_class() -> None:
    assert RubricsvcError.by_code["not_found"] is NotFoundError
    for code, kind in RubricsvcError.by_code.items():
        body = {"error": {"code": code, "message": "m", "hint": "h", "path": "p"}}
        error = transport.error_of(httpx2.Response(kind.status, json=body))
        assert (type(error), error.status, error.path) == (kind, kind.status, "p")


ONE: dict[str, Any] = {
    "judge": "instant", "prompts": (Prompt.of("Why?"),), "completions": (("one",),), "rubrics": (RUBRIC,),
}  # fmt: skip


def test_client_scores_many_prompts_in_one_job(client: Client, worker: InstantEngine) -> None:
    worker.answer = lambda question: Failure("timeout", "late") if "late" in question.text else agreeable(question)
    late = Rubric(criteria=[Criterion(key="late", text="Is late.")])
    stored = client.prompts.add("Which?").id
    client.rubrics.add(RUBRIC, "which", prompt_id=stored)
    prompts = ["Why?", stored, Prompt.of("How?")]
    seen: list[StoredJob] = []
    first, second, third = client.score_many(
        prompts, [RUBRIC, None, late], [["b", "a", "b"], ["c"], ["d"]], JUDGE, name="n", on_progress=seen.append
    )
    assert [item.reward for item in (*first, *second)] == [pytest.approx(2 / 3)] * 4
    assert first[0] == first[2] != first[1]
    texts = [client.completions.get(item.completion_id or 0).completion.text for item in (*first, *second, *third)]
    assert texts == ["b", "a", "b", "c", "d"]
    assert (third[0].reward, bool(third[0].null_reason), len(third[0].verdicts)) == (None, True, 1)
    assert client.rubrics.get(second[0].rubric_id or 0).name == "which"
    (job,) = client.jobs.page()
    assert (seen[-1].id, job.name, job.progress and job.progress.total) == (job.id, "n", 4)


def test_client_names_the_timeout_that_cancelled_a_job(client: Client) -> None:
    ((item,),) = client.score_many(["Why?"], RUBRIC, [["no worker"]], JUDGE, timeout=0.1, cancel_late=True)
    assert (item.state, item.reward) == ("cancelled", None)
    assert "timeout = 0.1 s" in (item.null_reason or "")


def test_client_sends_a_large_request_in_parts(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.judges.add(JUDGE)
    stored = client.prompts.add("Which?", external_id="which").id
    (known,) = client.completions.add(stored, ["known"]).ids
    new = NewRewards(
        judge="instant",
        prompts=(Prompt.of("Why?"), "which"),
        completions=(("a", "b"), ("c", known)),
        rubrics=(RUBRIC,),
        timeout=0,
    )
    whole = client.rewards.submit(new)
    monkeypatch.setattr("rubricsvc.client.nouns.LARGE_BODY", 0)
    assert [one.completion_id for one in client.rewards.submit(new).rewards] == [
        one.completion_id for one in whole.rewards
    ]
    assert len(client.completions.page().data) == 4
    with pytest.raises(InvalidError) as caught:
        client.rewards.submit(judge="instant", prompts=("which",), completions=(("a",), ("b",)), rubrics=(RUBRIC,))
    assert caught.value.path == "completions"


def test_client_rewards_that_are_waited_for_hold_no_thread_of_the_service(client: Client, url: str) -> None:
    """With a thread each, 60 of them would keep the service from cancelling the job."""
    client.judges.add(JUDGE)
    job_id = client.rewards.submit(**ONE, timeout=0).job_id

    async def wait() -> list[str]:
        async with AsyncClient(url) as waiting:
            waits = [asyncio.create_task(waiting.rewards.get(job_id, timeout=50)) for _ in range(60)]
            await asyncio.sleep(0.5)
            await waiting.jobs.cancel(job_id)
            return [rewards.status for rewards in await asyncio.gather(*waits)]

    assert asyncio.run(wait()) == ["cancelled"] * 60
