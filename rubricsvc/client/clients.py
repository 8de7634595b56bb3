"""Client and AsyncClient."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, ParamSpec, Self, TypeVar

import httpx2

from rubricsvc.client.nouns import C, Completions, Imports, Jobs, Judges, Labels, Method, Prompts, Rubrics, Verdicts
from rubricsvc.client.transport import Flow, Result, http_options
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import Reward, reward
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.schemas import Item, Page, StoredJob

DEFAULT_URL = "http://127.0.0.1:8321"

T = TypeVar("T")
P = ParamSpec("P")
OnProgress = Callable[[StoredJob], None]


@dataclass(frozen=True)
class ScoredCompletion(Reward):
    """A completion's reward with its verdicts. ``value`` is None if too little was judged."""

    verdicts: tuple[Verdict, ...] = ()
    completion_id: int = 0


def _wait(job_id: int, timeout: float | None = None, on_progress: OnProgress | None = None) -> Flow[StoredJob]:
    """Wait until a job is finished, and return it.

    Args:
        job_id: the job.
        timeout: seconds; None waits without limit.
        on_progress: called with the job at each poll.

    Raises:
        TimeoutError: the job is not finished after ``timeout``. It goes on; wait again, or cancel it.
    """
    end = math.inf if timeout is None else time.monotonic() + timeout
    delay = 0.02
    while True:
        job = yield from Jobs.get(job_id)
        if on_progress is not None:
            on_progress(job)
        if job.finished:
            return job
        if (left := end - time.monotonic()) <= 0:
            raise TimeoutError(f"job {job_id} is not finished after {timeout:g} s")
        yield min(delay, left)
        delay = min(2.0, delay * 1.5)


def _score(
    prompt: Prompt | str,
    rubric: Rubric,
    completions: Sequence[Completion | str],
    judge: Judge | str,
    *,
    rubric_name: str | None = None,
    timeout: float | None = None,
    on_progress: OnProgress | None = None,
) -> Flow[list[ScoredCompletion]]:
    """Store the values, score them in a job, wait, and return one result per completion, in order.

    Args:
        prompt: the prompt of all completions.
        rubric: the rubric to score by.
        completions: texts or `Completion` values.
        judge: a judge, or the name of a stored one.
        rubric_name: name to store the rubric under; without it the rubric is named by its digest and shared.
        timeout: seconds to wait for the job.
        on_progress: called with the job at each poll.

    Raises:
        TimeoutError: the job is not finished after ``timeout``. It goes on.
    """
    prompt_id = (yield from Prompts.add(prompt)).id
    if rubric_name:
        stored = yield from Rubrics.add(rubric, rubric_name, prompt_id=prompt_id)
    else:
        stored = yield from Rubrics.add(rubric, f"rubric-{rubric.digest[:12]}")
    judge_ref = (yield from Judges.add(judge)).id if isinstance(judge, Judge) else judge
    ids = (yield from Completions.add(prompt_id, completions)).ids
    job = yield from Jobs.submit(judge_ref, [(id_, stored.id) for id_ in dict.fromkeys(ids)])
    yield from _wait(job.id, timeout, on_progress)
    scored: dict[int, ScoredCompletion] = {}
    after: int | None = 0
    while after is not None:
        page = yield from Jobs.items(job.id, after=after)
        scored |= {item.completion_id: _scored(item, rubric) for item in page.data}
        after = page.next
    return [scored[id_] for id_ in ids]


def _scored(item: Item, rubric: Rubric) -> ScoredCompletion:
    folded = reward(rubric, item.verdicts) if item.reward is not None else None
    return ScoredCompletion(
        value=item.reward,
        coverage=item.coverage or 0.0,
        formula=item.formula or rubric.formula,
        contributions=folded.contributions if folded else {},
        vetoed_by=item.vetoed_by,
        null_reason=None if folded else item.null_reason or item.state,
        verdicts=item.verdicts,
        completion_id=item.completion_id,
    )


class _Nouns(Generic[C]):
    def __init__(self, client: C) -> None:
        self.prompts = Prompts(client)
        self.rubrics = Rubrics(client)
        self.completions = Completions(client)
        self.judges = Judges(client)
        self.jobs = Jobs(client)
        self.verdicts = Verdicts(client)
        self.labels = Labels(client)
        self.imports = Imports(client)


class Client(_Nouns["Client"]):
    """Blocking client. Safe to share between threads.

    Args:
        base_url: address of ``rubricsvc serve``.
        api_key: defaults to ``RUBRICSVC_API_KEY`` in the environment.
        timeout: seconds per request.
        transport: httpx2 transport instead of sockets.

    Raises (from every method):
        RubricsvcError: the error of the service, in the class it has there; UnavailableError without a response.
    """

    wait = Method(_wait)
    score = Method(_score)

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        api_key: str | None = None,
        *,
        timeout: float = 60.0,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._http = httpx2.Client(transport=transport, **http_options(base_url, api_key, timeout))
        super().__init__(self)

    def run(self, flow: Flow[T]) -> T:
        """Send the requests of a flow, sleep when it says, and return its result."""
        result: Result | None = None
        while True:
            try:
                step = flow.send(result)
            except StopIteration as end:
                value: T = end.value
                return value
            if isinstance(step, float):
                time.sleep(step)
                continue
            try:
                result = self._http.request(**step)
            except httpx2.TransportError as error:
                result = error

    def iterate(self, page: Callable[P, Page[T]], *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        """Iterate over all pages of a ``page`` method: ``client.iterate(client.jobs.items, job_id)``."""
        after: int | None = 0
        while after is not None:
            current = page(*args, **{**kwargs, "after": after})  # type: ignore[arg-type]
            yield from current.data
            after = current.next

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Nouns["AsyncClient"]):
    """Client with coroutines. Arguments, methods and errors are those of `Client`."""

    wait = Method(_wait)
    score = Method(_score)

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        api_key: str | None = None,
        *,
        timeout: float = 60.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx2.AsyncClient(transport=transport, **http_options(base_url, api_key, timeout))
        super().__init__(self)

    async def run(self, flow: Flow[T]) -> T:
        """See `Client.run`."""
        result: Result | None = None
        while True:
            try:
                step = flow.send(result)
            except StopIteration as end:
                value: T = end.value
                return value
            if isinstance(step, float):
                await asyncio.sleep(step)
                continue
            try:
                result = await self._http.request(**step)
            except httpx2.TransportError as error:
                result = error

    async def iterate(
        self, page: Callable[P, Awaitable[Page[T]]], *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[T]:
        """Iterate over all pages: ``async for item in client.iterate(client.jobs.items, job_id)``."""
        after: int | None = 0
        while after is not None:
            current = await page(*args, **{**kwargs, "after": after})  # type: ignore[arg-type]
            for row in current.data:
                yield row
            after = current.next

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
