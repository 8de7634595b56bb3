"""The service from Python: ``Client``, and ``AsyncClient`` with the same methods to be awaited.

::

    with Client() as client:
        for answer in client.score("Why is the sky blue?", rubric, ["Air scatters…", "The sea…"], judge="local-vllm"):
            print(answer.value, answer.coverage)
        for job in client.iterate(client.jobs.page, status="completed"):
            print(job.id, job.name)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, ParamSpec, Self, TypeVar, cast

import httpx2

from rubricsvc.client import calls
from rubricsvc.client.calls import Scored
from rubricsvc.client.flows import Flow, Outcome, Send, Sleep
from rubricsvc.client.nouns import (
    AsyncCompletions,
    AsyncJobs,
    AsyncJudges,
    AsyncLabels,
    AsyncPrompts,
    AsyncRubrics,
    AsyncVerdicts,
    Completions,
    Jobs,
    Judges,
    Labels,
    Prompts,
    Rubrics,
    Verdicts,
    awaited,
    blocking,
)
from rubricsvc.schemas import Page
from rubricsvc.settings import secret

__all__ = ["AsyncClient", "Client", "Scored"]

DEFAULT_URL = "http://127.0.0.1:8321"

T = TypeVar("T")
P = ParamSpec("P")


def _options(base_url: str, api_key: str | None, timeout: float) -> dict[str, Any]:
    """What both clients give to httpx2. Without ``api_key`` ``RUBRICSVC_API_KEY`` is sent, if it is set."""
    key = api_key or secret("RUBRICSVC_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return {"base_url": base_url.rstrip("/") + "/v1/", "headers": headers, "timeout": timeout}


def _request(send: Send) -> dict[str, Any]:
    return {"params": send.params, "headers": send.headers, "content": send.content}


class Client:
    """The service, blocking. Safe to share between threads.

    Args:
        base_url: where ``rubricsvc serve`` listens.
        api_key: unset, ``RUBRICSVC_API_KEY`` in the environment.
        timeout: seconds that one request may take.
        transport: of httpx2, in place of sockets.

    Raises (from every call):
        RubricsvcError: what the service answered, in the class it has there; UnavailableError where it does not answer.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        api_key: str | None = None,
        *,
        timeout: float = 60.0,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._http = httpx2.Client(transport=transport, **_options(base_url, api_key, timeout))
        self.prompts = Prompts(self)
        self.rubrics = Rubrics(self)
        self.completions = Completions(self)
        self.judges = Judges(self)
        self.jobs = Jobs(self)
        self.verdicts = Verdicts(self)
        self.labels = Labels(self)

    wait = blocking(calls.wait)
    score = blocking(calls.score)

    def run(self, flow: Flow[T]) -> T:
        """Do what ``flow`` asks for until it is done."""
        outcome: Outcome = None
        try:
            while True:
                outcome = self._do(flow.send(outcome))
        except StopIteration as end:
            return cast(T, end.value)
        finally:
            flow.close()

    def _do(self, step: Send | Sleep) -> Outcome:
        if isinstance(step, Sleep):
            time.sleep(step.seconds)
            return None
        try:
            return self._http.request(step.method, step.path, **_request(step))
        except httpx2.TransportError as error:
            return error

    def iterate(self, page: Callable[P, Page[T]], *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        """All that the pages of ``page`` hold: ``client.iterate(client.jobs.items, job_id)``."""
        after: int | None = 0
        while after is not None:
            found = page(*args, **{**kwargs, "after": after})  # type: ignore[arg-type]
            yield from found.data
            after = found.next

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient:
    """The service, to be awaited. Its arguments and errors are those of `Client`."""

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        api_key: str | None = None,
        *,
        timeout: float = 60.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx2.AsyncClient(transport=transport, **_options(base_url, api_key, timeout))
        self.prompts = AsyncPrompts(self)
        self.rubrics = AsyncRubrics(self)
        self.completions = AsyncCompletions(self)
        self.judges = AsyncJudges(self)
        self.jobs = AsyncJobs(self)
        self.verdicts = AsyncVerdicts(self)
        self.labels = AsyncLabels(self)

    wait = awaited(calls.wait)
    score = awaited(calls.score)

    async def run(self, flow: Flow[T]) -> T:
        """Do what ``flow`` asks for until it is done."""
        outcome: Outcome = None
        try:
            while True:
                outcome = await self._do(flow.send(outcome))
        except StopIteration as end:
            return cast(T, end.value)
        finally:
            flow.close()

    async def _do(self, step: Send | Sleep) -> Outcome:
        if isinstance(step, Sleep):
            await asyncio.sleep(step.seconds)
            return None
        try:
            return await self._http.request(step.method, step.path, **_request(step))
        except httpx2.TransportError as error:
            return error

    async def iterate(
        self, page: Callable[P, Awaitable[Page[T]]], *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[T]:
        """All that the pages of ``page`` hold: ``async for item in client.iterate(client.jobs.items, job_id)``."""
        after: int | None = 0
        while after is not None:
            found = await page(*args, **{**kwargs, "after": after})  # type: ignore[arg-type]
            for item in found.data:
                yield item
            after = found.next

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
