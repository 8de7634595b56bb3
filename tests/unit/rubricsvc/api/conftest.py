"""The API over a fresh database, without sockets."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rubricsvc.api.app import create_app, set_state
from rubricsvc.settings import Settings
from rubricsvc.store.session import Database

Serve = Callable[..., TestClient]

RUBRIC = {"criteria": [{"key": "a", "text": "Says a.", "weight": 2}, {"key": "b", "text": "Says b."}]}
JUDGE = {"name": "j", "model": "m", "endpoint": {"base_url": "http://127.0.0.1:9/v1"}}


class DeclaredStatuses:
    """Middleware that fails a test whose response has a status that the endpoint does not declare in OpenAPI."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_declared(message: Message) -> None:
            route = scope.get("route")
            if message["type"] == "http.response.start" and getattr(route, "include_in_schema", False):
                declared = {route.status_code or 200, 405, *route.responses}
                assert message["status"] in declared, (scope["method"], route.path, message["status"])
            await send(message)

        await self.app(scope, receive, send_declared)


@cache
def _app(number: int) -> FastAPI:
    """Made once a test run: the ``number``-th service of a test, which stands on what each test gives it."""
    return create_app(Settings(), Database("sqlite:///unused.db"))


@pytest.fixture
def serve(db: Database) -> Iterator[Serve]:
    """Makes a service with these settings, and a client of it that calls from ``peer``."""
    clients: list[TestClient] = []

    def make(*, peer: str = "127.0.0.1", url: str = "http://localhost", **fields: Any) -> TestClient:
        app = _app(len(clients))
        set_state(app, Settings(database_url=db.url, **fields), db)
        clients.append(TestClient(DeclaredStatuses(app), base_url=url, client=(peer, 50000)))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def http(serve: Serve) -> TestClient:
    """A service on loopback, called from there."""
    return serve()


@pytest.fixture
def filled(http: TestClient) -> TestClient:
    """The service with one prompt, rubric ``r``, two completions and judge ``j``, each with id 1 (and 2)."""
    prompt = {"prompt": {"messages": [{"role": "user", "content": "Why?"}]}, "external_id": "p/1"}
    answers = [{"prompt_id": 1, "completion": {"text": text, "policy": "q"}} for text in ("one", "two")]
    for path, body in (
        ("prompts", prompt),
        ("rubrics", {"name": "r", "rubric": RUBRIC, "prompt_id": 1}),
        ("completions", {"completions": answers}),
        ("judges", {"judge": JUDGE}),
    ):
        assert http.post(f"/v1/{path}", json=body).status_code == 201
    return http
