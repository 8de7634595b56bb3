"""Client and AsyncClient."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from functools import cached_property, partial
from itertools import islice
from typing import Any, ClassVar, ParamSpec, TypeVar, cast
from urllib.parse import urlsplit

import httpx2

from rubricsvc.client import nouns
from rubricsvc.client.transport import C, Noun, method
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import InvalidError, cut
from rubricsvc.schemas.base import Page, every_row, request
from rubricsvc.schemas.jobs import Item, NewRewards
from rubricsvc.settings import get_settings, secret
from rubricsvc.waiting import WAIT_SECONDS, Notify, OnProgress

DEFAULT_URL = "http://127.0.0.1:8321"

T = TypeVar("T")
P = ParamSpec("P")


class _Client(Noun[C]):
    connect: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        api_key: str | None = None,
        *,
        timeout: float = 60.0,
        outage_seconds: float | None = None,
        transport: Any = None,
    ) -> None:
        super().__init__(self)
        if outage_seconds is None:
            outage_seconds = get_settings().outage_seconds
        try:
            parts = urlsplit(base_url)
            valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except (ValueError, AttributeError):  # a port or an IPv6 address that is none, or no text
            valid = False
        if not valid or " " in base_url or not base_url.isprintable():
            given = cut(repr(str(base_url).rpartition("@")[2]), 80)  # before it may be a password
            hint = f"write http:// or https:// and a host, for example {DEFAULT_URL}"
            raise InvalidError(f"base_url: {given} is not an http(s) URL with a host", hint=hint, path="base_url")
        durations = {"outage_seconds": (outage_seconds, "0 or more"), "timeout": (timeout, "more than 0")}
        for name, (value, least) in durations.items():
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not number or value < 0 or (value == 0 and name == "timeout"):
                message = f"{name}: expected a number of seconds, {least}; got {cut(repr(value), 80)}"
                raise InvalidError(message, path=name)
        self.outage_seconds = outage_seconds
        self._arguments = {"base_url": base_url, "api_key": api_key, "timeout": timeout, "transport": transport}
        key = api_key or secret("RUBRICSVC_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.address = base_url.rstrip("/")
        self._pools: dict[asyncio.AbstractEventLoop, httpx2.AsyncClient] = {}  # of an AsyncClient
        url = f"{self.address}/v1/"
        self._connect = partial(self.connect, base_url=url, headers=headers, timeout=timeout, transport=transport)
        self.prompts = nouns.Prompts[C](self)
        self.rubrics = nouns.Rubrics[C](self)
        self.completions = nouns.Completions[C](self)
        self.judges = nouns.Judges[C](self)
        self.jobs = nouns.Jobs[C](self)
        self.rewards = nouns.Rewards[C](self)
        self.verdicts = nouns.Verdicts[C](self)
        self.labels = nouns.Labels[C](self)
        self.evolutions = nouns.Evolutions[C](self)
        self.runs = nouns.Runs[C](self)
        self.imports = nouns.Imports[C](self)

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        """Pickle the arguments: a process that is started with a client connects by itself."""
        return partial(type(self), **self._arguments, outage_seconds=self.outage_seconds), ()

    @method
    async def score(
        self,
        prompt: Prompt | str,
        rubric: Rubric | int | str,
        completions: Sequence[Completion | str],
        judge: Judge | int | str,
        *,
        min_coverage: float | None = None,
        allow_drafts: bool = False,
        timeout: float | None = WAIT_SECONDS,
        on_progress: OnProgress | None = None,
    ) -> list[Item]:
        """Store the values, score them in a job, wait for it, and return one item per completion, in order.

        ``rubric`` and ``judge`` are values to store, or refer to stored ones as in `Jobs.submit`.
        ``min_coverage`` is used instead of the rubric's own. With ``allow_drafts`` the rubric needs no approval.

        Raises:
            TimeoutError: the job is not finished after ``timeout`` seconds (None: no limit). It goes on.
        """
        options: dict[str, Any] = {"min_coverage": min_coverage, "allow_drafts": allow_drafts, "timeout": timeout}
        one = ([prompt], [rubric], [completions], judge)
        items: list[list[Item]] = await _Client.score_many(self, *one, on_progress=on_progress, **options)
        return items[0]

    @method
    async def score_many(
        self,
        prompts: Sequence[Prompt | int | str],
        rubrics: Rubric | int | str | Sequence[Rubric | int | str | None] | None,
        completions: Sequence[Sequence[Completion | str]],
        judge: Judge | int | str,
        *,
        name: str = "",
        budget: float | None = None,
        min_coverage: float | None = None,
        allow_drafts: bool = False,
        verdicts: bool = True,
        timeout: float | None = WAIT_SECONDS,
        cancel_late: bool = False,
        on_progress: OnProgress | None = None,
    ) -> list[list[Item]]:
        """Score the completions of many prompts in one job; return the items of each prompt, in the order given.

        An item without a reward has a ``null_reason``. The same completion of a prompt twice has the same item.

        Args:
            prompts: texts or values to store, or ids of stored ones.
            rubrics: one for all prompts or one for each, as values or as in `Jobs.submit`; None: the prompt's own.
            completions: the completions of each prompt.
            judge: value to store, or id or name of a stored one.
            name: name of the job.
            budget: US dollars that the judge may cost.
            min_coverage: used instead of the rubrics' own.
            allow_drafts: use rubrics that are not approved.
            verdicts: return the verdicts too.
            timeout: seconds to wait for the job; None for no limit.
            cancel_late: cancel a job that is not finished by then, and return what it has.
            on_progress: called with the job at each poll.

        Raises:
            NotFoundError, InvalidError: something is unknown, or there are more or fewer completions than prompts;
                ``path`` says where, and nothing is stored.
            TimeoutError: the job is not finished after ``timeout`` seconds. It goes on, unless ``cancel_late``.
        """
        judge_ref = (await nouns.Judges.add(self.judges, judge)).id if isinstance(judge, Judge) else judge
        options = {"name": name, "budget": budget, "min_coverage": min_coverage, "allow_drafts": allow_drafts}
        new = request(
            NewRewards,
            judge=judge_ref,
            timeout=0.0,
            prompts=tuple(Prompt.of(prompt) if isinstance(prompt, str) else prompt for prompt in prompts),
            completions=tuple(tuple(nouns.several(group)) for group in completions),
            rubrics=(rubrics,) if isinstance(rubrics, Rubric | int | str) else tuple(rubrics or ()),
            **options,
        )
        submitted, late = await nouns.Rewards.submit(self.rewards, new), dict[str, str]()
        try:
            await nouns.Jobs.wait(self.jobs, submitted.job_id, timeout, on_progress)
        except TimeoutError:
            if not cancel_late:
                raise
            await nouns.Jobs.cancel(self.jobs, submitted.job_id)
            late["null_reason"] = f"cancelled: job {submitted.job_id} is not finished after timeout = {timeout:g} s"
        page = partial(nouns.Jobs.items, self.jobs, submitted.job_id, verdicts=verdicts)
        by_key = {
            (item.completion_id, item.rubric_id): item.model_copy(update=late if item.state == "cancelled" else {})
            async for item in AsyncClient.iterate(page)
        }
        scored = iter([by_key[one.completion_id, one.rubric_id] for one in submitted.rewards])
        return [list(islice(scored, len(group))) for group in completions]


class Client(_Client["Client"], AbstractContextManager["Client"]):
    """Blocking client. Safe to share between threads.

    Args:
        base_url: address of ``rubricsvc serve``.
        api_key: defaults to ``RUBRICSVC_API_KEY`` in the environment.
        timeout: seconds per request.
        outage_seconds: seconds that a request is repeated while the service does not answer, for example because it
            is restarted; defaults to the setting ``RUBRICSVC_OUTAGE_SECONDS``. 0 raises the first error.
        transport: httpx2 transport instead of sockets.

    Raises:
        InvalidError: ``base_url`` is not an http(s) URL with a host, or a number of seconds is not finite, negative or,
            for ``timeout``, 0.

    Raises (from every method):
        RubricsvcError: the error of the service, in the class it has there; UnavailableError without a response.
    """

    connect = httpx2.Client

    @cached_property
    def http(self) -> httpx2.Client:
        """The connections."""
        return cast("httpx2.Client", self._connect())

    async def sleep(self, seconds: float) -> None:
        """Block for some seconds."""
        time.sleep(seconds)

    def run(self, method: Coroutine[Any, Any, T]) -> T:
        """Return the result of a method. It never suspends, since the calls of a blocking client block."""
        try:
            method.send(None)
        except StopIteration as end:
            value: T = end.value
            return value
        raise RuntimeError("a blocking client cannot wait for an event loop")

    @staticmethod
    def iterate(page: Callable[P, Page[T]], *args: P.args, **fields: P.kwargs) -> Iterator[T]:
        """Iterate over all pages of a ``page`` method: ``client.iterate(client.jobs.items, job_id)``."""
        return every_row(page, *args, **fields)

    def scoring(self, job_id: int, notify: Notify) -> AbstractContextManager[None]:
        """Return a block that does nothing: the workers of the service score its jobs."""
        return nullcontext()

    def close(self) -> None:
        """Close the connections."""
        self.http.close()

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Client["AsyncClient"], AbstractAsyncContextManager["AsyncClient"]):
    """Client with coroutines. Arguments, methods and errors are those of `Client`.

    It may be used in several event loops, one after another (``asyncio.run``) or in threads: each has its connections.
    """

    connect = httpx2.AsyncClient
    sleep = staticmethod(asyncio.sleep)

    @property
    def http(self) -> httpx2.AsyncClient:
        """The connections of the running event loop. Those of loops that are closed cannot be used, and are dropped."""
        if (loop := asyncio.get_running_loop()) not in self._pools:
            self._pools = {one: pool for one, pool in self._pools.items() if not one.is_closed()}
            self._pools[loop] = self._connect()
        return self._pools[loop]

    def run(self, method: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Return the coroutine."""
        return method

    @staticmethod
    async def iterate(page: Callable[P, Awaitable[Page[T]]], *args: P.args, **fields: P.kwargs) -> AsyncIterator[T]:
        """Iterate over all pages: ``async for item in client.iterate(client.jobs.items, job_id)``."""
        after: int | None = 0
        while after is not None:
            current = await page(*args, **{**fields, "after": after})  # type: ignore[arg-type]
            for row in current.data:
                yield row
            after = current.next

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self.http.aclose()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
