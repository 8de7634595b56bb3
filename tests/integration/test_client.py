"""The client against a real server on a socket, and against servers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
import uvicorn

from rubricsvc.api.app import create_app
from rubricsvc.client import AsyncClient, Client, transport
from rubricsvc.core.judge import Judge
from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import (
    ConflictError,
    InvalidError,
    NotFoundError,
    RubricsvcError,
    UnauthorizedError,
    UnavailableError,
)
from rubricsvc.schemas import StoredJob
from rubricsvc.settings import Settings, get_settings
from rubricsvc.store import keys, outbox
from rubricsvc.store.session import Database
from tests.instant_engine import InstantEngine, agreeable
from tests.services import free_port
from workers import engines
from workers.engines.base import Failure, Question, Reply
from workers.queue.drain import Drainer

RUBRIC = Rubric(
    criteria=[Criterion(key="a", text="Says a.", weight=3), Criterion(key="pit", text="Is wrong.", weight=-1)]
)
JUDGE = Judge(name="instant", engine="instant", model="m", mode="written", threshold=0.5)


@contextlib.contextmanager
def running(db: Database, *, at_port: int = 0, **fields: Any) -> Iterator[str]:
    """The service on a socket; its URL."""
    app = create_app(Settings(database_url=db.url, **fields), db)
    server = uvicorn.Server(uvicorn.Config(app, port=at_port, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def url(db: Database) -> Iterator[str]:
    with running(db) as address:
        yield address


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as made:
        yield made


@pytest.fixture
def worker(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Callable[[Question], Reply | Failure] | None], None]]:
    """Has jobs worked off, in a thread, by an engine that answers at once; the engine's answers can be set."""
    engine = InstantEngine()
    monkeypatch.setitem(engines.ENGINES, "instant", lambda _judge: engine)
    threads: list[threading.Thread] = []

    def send(_task: str, args: list[object]) -> None:
        threads.append(threading.Thread(target=Drainer(db, Settings(database_url=db.url)).run, args=args))
        threads[-1].start()

    db.on_commit = lambda: (outbox.relay(db, send), None)[1]

    def answers(answer: Callable[[Question], Reply | Failure] | None) -> None:
        if answer is not None:
            engine.answer = answer

    yield answers
    for thread in threads:
        thread.join()


def test_client_methods_round_trip(client: Client) -> None:
    prompt = client.prompts.add("Why?", external_id="a/b c")
    assert client.prompts.get(prompt.id) == client.prompts.get("a/b c") == prompt
    rubric = client.rubrics.add(RUBRIC, "my rubric", prompt_id=prompt.id)
    assert client.rubrics.get("my rubric@1") == rubric
    assert rubric.rubric == RUBRIC
    (id_,) = client.completions.add(
        prompt.id, [Completion(text="é\n\u202e", policy="p", step=3, sampling={"t": 0.5})]
    ).ids
    assert client.completions.get(id_).completion.sampling == {"t": 0.5}
    judge = client.judges.add(JUDGE)
    assert client.judges.get("instant").judge == JUDGE
    job = client.jobs.submit(judge.id, [(id_, rubric.id)], name="n", key="k")
    assert client.jobs.submit("instant", [(id_, "my rubric")], key="k").id == job.id
    assert client.jobs.submit("instant", [(id_, "my rubric")]).id != job.id
    assert client.jobs.cancel(job.id).status == "cancelled"
    assert client.jobs.retry(job.id).reopened == 1
    assert client.jobs.rescore(job.id, rubric=["my rubric@1"]).id == job.id
    assert [row.id for row in client.jobs.page(status="queued").data] == [1, 2]
    (item,) = client.jobs.items(job.id).data
    assert (item.completion_id, item.state, item.reward) == (id_, "pending", None)
    assert client.jobs.pairs(job.id).data == ()
    compared = client.jobs.compare(job.id, 2, by="completion")
    assert (compared.paired, compared.left_out[0].reason, compared.mean_difference.value) == (0, "unfinished", None)
    report = client.jobs.report(job.id, completions=1)
    assert report.startswith("<!doctype html>") and "my rubric@1" in report
    assert client.jobs.get(job.id).summary is None
    assert (now := client.jobs.get(job.id, summary=True).summary)
    assert (now.rewards, now.voting) == (0, {})
    assert client.verdicts.page(job_id=job.id).data == ()
    label = Label(criterion="pit", annotator="ann", value=None, note="cannot tell")
    assert client.labels.add([(id_, "my rubric", label), (id_, rubric.id, label)]).ids == (1, 1)
    assert [row.label for row in client.labels.page(annotator="ann").data] == [label]


@pytest.mark.parametrize("ref", ["support", "support@1", 1])
def test_client_score_takes_stored_rubric(client: Client, worker: Any, ref: int | str) -> None:
    client.rubrics.add(RUBRIC, "support")
    client.judges.add(JUDGE)
    (item,) = client.score("Why?", ref, ["It says a."], judge=1)
    assert (item.rubric_id, item.state) == (1, "done")


def test_client_rejects_one_text_as_completions(client: Client) -> None:
    with pytest.raises(TypeError):
        client.completions.add(client.prompts.add("Why?").id, "one text")
    with pytest.raises(TypeError):
        client.score("Why?", RUBRIC, "one text", JUDGE)
    assert client.completions.page().data == ()


def test_client_rejects_invalid_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICSVC_API_KEY", "rsv_1\n")
    with pytest.raises(InvalidError, match="RUBRICSVC_API_KEY"):
        Client()


def test_client_page_iterates_over_its_rows(client: Client) -> None:
    prompt = client.prompts.add("Why?")
    client.completions.add(prompt.id, ["one", "two", "three"])
    page = client.completions.page(limit=2)
    assert [row.completion.text for row in page] == ["one", "two"] and page.next == 2


def test_client_iterate_reads_all_pages(client: Client) -> None:
    prompt = client.prompts.add("Why?")
    client.completions.add(prompt.id, [f"answer {n}" for n in range(7)])
    rows = client.iterate(client.completions.page, prompt_id=prompt.id, limit=2)
    assert [row.completion.text for row in rows] == [f"answer {n}" for n in range(7)]


def test_client_raises_errors_of_service(client: Client) -> None:
    with pytest.raises(NotFoundError, match="7") as caught:
        client.jobs.get(7)
    assert caught.value.hint
    client.judges.add(JUDGE)
    with pytest.raises(ConflictError):
        client.judges.add(JUDGE.model_copy(update={"model": "another"}))
    with pytest.raises(InvalidError) as caught_invalid:
        client.prompts.page(limit=0)
    assert caught_invalid.value.path == "query.limit"


def test_client_score_returns_rewards(client: Client, worker: Any) -> None:
    seen: list[StoredJob] = []
    scored = client.score("Why?", RUBRIC, ["one", "two", "one"], JUDGE, timeout=60, on_progress=seen.append)
    assert [answer.reward for answer in scored] == [pytest.approx(2 / 3)] * 3
    assert [verdict.criterion for verdict in scored[0].verdicts] == ["a", "pit"]
    assert scored[0].completion_id == scored[2].completion_id != scored[1].completion_id
    assert seen[-1].status == "completed"
    again = client.score("Why?", RUBRIC, ["two"], "instant", timeout=60)  # by the judge's name, from what is known
    assert again[0].reward == scored[1].reward


def test_client_score_takes_min_coverage(client: Client, worker: Any) -> None:
    worker(lambda _question: Failure("no_answer", "so") if "wrong" in _question.text else agreeable(_question))
    strict, lenient = (
        client.score("Why?", RUBRIC, ["one"], JUDGE, min_coverage=least, timeout=60)[0] for least in (None, 0.75)
    )
    assert (strict.reward, strict.null_reason) == (None, "coverage 0.75 < 1: no_answer ×1")
    assert (lenient.reward, lenient.coverage) == (1.0, 0.75)


def test_client_submits_completions_under_the_rubrics_of_their_prompt(client: Client) -> None:
    prompt = client.prompts.add("Why?")
    rubric = client.rubrics.add(RUBRIC, "own", prompt_id=prompt.id)
    client.judges.add(JUDGE)
    job = client.jobs.submit("instant", client.completions.add(prompt.id, ["one", "two"]).ids, min_coverage=0.5)
    assert [item.rubric_id for item in client.jobs.items(job.id).data] == [rubric.id] * 2
    assert client.jobs.rescore(job.id, min_coverage=0.5).id == job.id
    assert client.jobs.rescore(job.id, min_coverage=0.25).min_coverage == 0.25


def test_client_score_failed_judge_has_no_value(client: Client, worker: Any) -> None:
    worker(lambda _question: Failure("timeout", "too slow"))
    (answer,) = client.score(Prompt.of("Why?"), RUBRIC, ["one"], JUDGE, timeout=60)
    assert answer.reward is None
    assert answer.coverage == 0.0
    assert answer.null_reason
    assert {verdict.outcome for verdict in answer.verdicts} == {"failed"}


def test_client_score_shares_rubric_between_prompts(client: Client, worker: Callable[[None], None]) -> None:
    worker(None)
    for question in ("Why?", "How?"):
        (scored,) = client.score(question, RUBRIC, ["one"], JUDGE, timeout=30)
        assert scored.reward is not None
    with pytest.raises(ConflictError):
        client.rubrics.add(RUBRIC, f"rubric-{RUBRIC.digest[:12]}", prompt_id=1)


def test_client_wait_raises_timeout(client: Client) -> None:
    prompt = client.prompts.add("Why?")
    client.rubrics.add(RUBRIC, "r")
    client.judges.add(JUDGE)
    job = client.jobs.submit("instant", [(client.completions.add(prompt.id, ["one"]).ids[0], "r")])
    with pytest.raises(TimeoutError, match=f"job {job.id}"):
        client.wait(job.id, timeout=0.05)


def test_client_proxy_error_is_unavailable() -> None:
    transport = httpx2.MockTransport(lambda _request: httpx2.Response(502, text="Bad Gateway"))
    client = Client("http://proxy", transport=transport, outage_seconds=0)
    with client, pytest.raises(UnavailableError, match="502"):
        client.jobs.get(1)


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


def test_async_client_round_trip(url: str, worker: Any) -> None:
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
        httpx2.Response(503, headers={"Retry-After": "3"}),
        httpx2.Response(429, headers={"Retry-After": "garbage"}),
        httpx2.ReadTimeout("slow"),
        httpx2.Response(200, json=EMPTY),
    )
    assert Client(transport=transport).prompts.page().data == ()
    assert len(transport.requests) == 5
    assert slept[1] == 3.0
    assert all(0 < seconds < 2 for seconds in (slept[0], slept[2], slept[3]))


def test_client_retry_sends_same_idempotency_key(slept: list[float]) -> None:
    transport = Answers(
        httpx2.ConnectError("lost"), httpx2.ReadError("lost"), httpx2.Response(404, text="nothing here")
    )
    with pytest.raises(RubricsvcError, match="nothing here"):
        Client(transport=transport).jobs.submit("j", [(1, "r")])
    sent = [request.headers["Idempotency-Key"] for request in transport.requests]
    assert len(sent) == 3
    assert len(set(sent)) == 1
    other = Answers(httpx2.Response(404))
    with pytest.raises(RubricsvcError):
        Client(transport=other).jobs.submit("j", [(1, "r")])
    assert other.requests[0].headers["Idempotency-Key"] != sent[0]


def test_client_gives_up_after_the_outage_timeout(slept: list[float]) -> None:
    busy = {"error": {"code": "unavailable", "message": "busy", "hint": "h", "path": ""}}
    with pytest.raises(UnavailableError, match="busy") as caught:
        Client(transport=Answers(*[httpx2.Response(503, json=busy) for _ in range(60)])).prompts.page()
    assert caught.value.hint == "h"
    assert sum(slept) == pytest.approx(60, abs=1)
    slept.clear()
    with (
        Client(f"http://127.0.0.1:{free_port()}", outage_seconds=7) as absent,
        pytest.raises(UnavailableError) as unreachable,
    ):
        absent.prompts.page()
    assert sum(slept) == pytest.approx(7, abs=1)
    assert str(absent.http.base_url) in unreachable.value.message and "rubricsvc serve" in unreachable.value.hint
    assert unreachable.value.__suppress_context__, "no chain of the transport's errors"


def test_client_without_an_outage_timeout_asks_once(slept: list[float]) -> None:
    busy = Answers(httpx2.Response(503))
    with pytest.raises(UnavailableError):
        Client(transport=busy, outage_seconds=0).prompts.page()
    assert (len(busy.requests), slept) == (1, [])


def test_client_takes_the_outage_timeout_from_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    get_settings.cache_clear()
    monkeypatch.setenv("RUBRICSVC_OUTAGE_SECONDS", "5.5")
    try:
        assert (Client().outage_seconds, Client(outage_seconds=1).outage_seconds) == (5.5, 1)
    finally:
        get_settings.cache_clear()


def test_client_names_a_response_of_another_program() -> None:
    html = httpx2.Response(200, text="<html>Welcome</html>")
    with pytest.raises(RubricsvcError, match="/v1/prompts") as caught:
        Client("http://proxy", transport=Answers(html)).prompts.page()
    assert caught.value.hint


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


def test_client_ignores_unknown_response_fields() -> None:
    row = {"id": 1, "created_at": "2026-01-01T00:00:00Z", "digest": "d", "external_id": None, "colour": "blue"}
    row["prompt"] = {"messages": [{"role": "user", "content": "q", "mood": "good"}]}
    assert Client(transport=Answers(httpx2.Response(200, json=row))).prompts.get(1).prompt.text == "q"


def test_client_error_of_restores_class() -> None:
    assert RubricsvcError.by_code["not_found"] is NotFoundError
    for code, kind in RubricsvcError.by_code.items():
        body = {"error": {"code": code, "message": "m", "hint": "h", "path": "p"}}
        error = transport.error_of(httpx2.Response(kind.status, json=body))
        assert (type(error), error.status, error.path) == (kind, kind.status, "p")
