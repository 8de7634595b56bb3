"""Client and AsyncClient."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import ParamSpec, Self, TypeVar

import httpx2
from pydantic import BaseModel

from rubricsvc.client.nouns import Completions, Imports, Jobs, Judges, Labels, Prompts, Rubrics, Verdicts
from rubricsvc.client.requests import Request, ScoredCompletion
from rubricsvc.client.transport import Result, http_options, parse, retry_delay
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import reward
from rubricsvc.core.rubric import Rubric
from rubricsvc.schemas import Item, Page, StoredJob

DEFAULT_URL = "http://127.0.0.1:8321"

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
P = ParamSpec("P")
OnProgress = Callable[[StoredJob], None]


class Client:
    """Blocking client. Safe to share between threads.

    Args:
        base_url: address of ``rubricsvc serve``.
        api_key: defaults to ``RUBRICSVC_API_KEY`` in the environment.
        timeout: seconds per request.
        transport: httpx2 transport instead of sockets.

    Raises (from every method):
        RubricsvcError: the error of the service, in the class it has there; UnavailableError without a response.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        api_key: str | None = None,
        *,
        timeout: float = 60.0,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._http = httpx2.Client(transport=transport, **http_options(base_url, api_key, timeout))
        self.prompts = Prompts(self)
        self.rubrics = Rubrics(self)
        self.completions = Completions(self)
        self.judges = Judges(self)
        self.jobs = Jobs(self)
        self.verdicts = Verdicts(self)
        self.labels = Labels(self)
        self.imports = Imports(self)

    def send(self, request: Request[M]) -> M:
        """Send a request, with retries, and return its parsed response."""
        for attempt in count():
            try:
                result: Result = self._http.request(**request.arguments())
            except httpx2.TransportError as error:
                result = error
            if (delay := retry_delay(result, attempt)) is None:
                break
            time.sleep(delay)
        return parse(request, result)

    def iterate(self, page: Callable[P, Page[T]], *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        """Iterate over all pages of a ``page`` method: ``client.iterate(client.jobs.items, job_id)``."""
        after: int | None = 0
        while after is not None:
            current = page(*args, **{**kwargs, "after": after})  # type: ignore[arg-type]
            yield from current.data
            after = current.next

    def wait(self, job_id: int, timeout: float | None = None, on_progress: OnProgress | None = None) -> StoredJob:
        """Wait until a job is finished, and return it.

        Args:
            job_id: the job.
            timeout: seconds; None waits without limit.
            on_progress: called with the job at each poll.

        Raises:
            TimeoutError: the job is not finished after ``timeout``. It goes on; wait again, or cancel it.
        """
        polling = _Polling(job_id, timeout)
        while not (job := self.jobs.get(job_id)).finished:
            _report(job, on_progress)
            time.sleep(polling.next_delay())
        _report(job, on_progress)
        return job

    def score(
        self,
        prompt: Prompt | str,
        rubric: Rubric,
        completions: Sequence[Completion | str],
        judge: Judge | str,
        *,
        rubric_name: str | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> list[ScoredCompletion]:
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
        stored = self.prompts.add(prompt)
        name, prompt_id = (rubric_name, stored.id) if rubric_name else (_shared_name(rubric), None)
        rubric_id = self.rubrics.add(rubric, name, prompt_id=prompt_id).id
        judge_ref = self.judges.add(judge).id if isinstance(judge, Judge) else judge
        ids = self.completions.add(stored.id, completions).ids
        job = self.jobs.submit(judge_ref, [(id_, rubric_id) for id_ in dict.fromkeys(ids)])
        self.wait(job.id, timeout, on_progress)
        return _in_order(ids, self.iterate(self.jobs.items, job.id), rubric)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient:
    """Client with coroutines. Arguments, methods and errors are those of `Client`."""

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        api_key: str | None = None,
        *,
        timeout: float = 60.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx2.AsyncClient(transport=transport, **http_options(base_url, api_key, timeout))
        self.prompts = Prompts(self)
        self.rubrics = Rubrics(self)
        self.completions = Completions(self)
        self.judges = Judges(self)
        self.jobs = Jobs(self)
        self.verdicts = Verdicts(self)
        self.labels = Labels(self)
        self.imports = Imports(self)

    async def send(self, request: Request[M]) -> M:
        """Send a request, with retries, and return its parsed response."""
        for attempt in count():
            try:
                result: Result = await self._http.request(**request.arguments())
            except httpx2.TransportError as error:
                result = error
            if (delay := retry_delay(result, attempt)) is None:
                break
            await asyncio.sleep(delay)
        return parse(request, result)

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

    async def wait(self, job_id: int, timeout: float | None = None, on_progress: OnProgress | None = None) -> StoredJob:
        """See `Client.wait`."""
        polling = _Polling(job_id, timeout)
        while not (job := await self.jobs.get(job_id)).finished:
            _report(job, on_progress)
            await asyncio.sleep(polling.next_delay())
        _report(job, on_progress)
        return job

    async def score(
        self,
        prompt: Prompt | str,
        rubric: Rubric,
        completions: Sequence[Completion | str],
        judge: Judge | str,
        *,
        rubric_name: str | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> list[ScoredCompletion]:
        """See `Client.score`."""
        stored = await self.prompts.add(prompt)
        name, prompt_id = (rubric_name, stored.id) if rubric_name else (_shared_name(rubric), None)
        rubric_id = (await self.rubrics.add(rubric, name, prompt_id=prompt_id)).id
        judge_ref = (await self.judges.add(judge)).id if isinstance(judge, Judge) else judge
        ids = (await self.completions.add(stored.id, completions)).ids
        job = await self.jobs.submit(judge_ref, [(id_, rubric_id) for id_ in dict.fromkeys(ids)])
        await self.wait(job.id, timeout, on_progress)
        items = [item async for item in self.iterate(self.jobs.items, job.id)]
        return _in_order(ids, items, rubric)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Polling:
    """Delays between polls of a job: 20 ms at first, growing to 2 s."""

    def __init__(self, job_id: int, timeout: float | None) -> None:
        self.job_id, self.timeout = job_id, timeout
        self.end = None if timeout is None else time.monotonic() + timeout
        self.delay = 0.02

    def next_delay(self) -> float:
        delay, self.delay = self.delay, min(2.0, self.delay * 1.5)
        if self.end is None:
            return delay
        if (left := self.end - time.monotonic()) <= 0:
            raise TimeoutError(f"job {self.job_id} is not finished after {self.timeout:g} s")
        return min(delay, left)


def _report(job: StoredJob, on_progress: OnProgress | None) -> None:
    if on_progress is not None:
        on_progress(job)


def _shared_name(rubric: Rubric) -> str:
    return f"rubric-{rubric.digest[:12]}"


def _in_order(ids: Sequence[int], items: Iterable[Item], rubric: Rubric) -> list[ScoredCompletion]:
    scored = {item.completion_id: _scored(item, rubric) for item in items}
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
