"""The engines of a process, kept between the drains of a judge: what its server has taught is not forgotten.

A minute's count of requests and tokens, a pause that was asked for, the calls at once that went well, an open circuit,
a chat template that was learned: all of it lies in the engine. An engine is used from one event loop, so that both are
kept, and a drain borrows them. Connections and memory are given back after each drain (``Engine.aclose``).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from structlog import get_logger

from rubricsvc.core.judge import Judge
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import RubricsvcError
from workers.engines import make_engine
from workers.engines.base import Engine, EngineRequest, Failure, Reply

log = get_logger(__name__)
T = TypeVar("T")

KEPT_SECONDS = 600.0
"""How long an engine that nobody uses is kept, at least: it goes when a later drain ends. Longer than a minute's count
and than any pause that is waited out."""


@dataclass(eq=False)
class _Home:
    """An engine and the loop that it lives in; ``since`` is when it was last used."""

    judge: Judge
    engine: Engine
    runner: asyncio.Runner = field(default_factory=asyncio.Runner)
    since: float = 0.0


class Kept:
    """Engines by judge, its endpoint included: one that has moved is another. Safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[Judge, _Home] = {}

    def run(self, judge: Judge, work: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
        """What ``work`` gives, with the judge's engine, in the engine's loop."""
        with self._lock:
            home = self._idle.pop(judge, None)
        home = home or _Home(judge, _engine_of(judge))

        async def whole() -> T:
            try:
                return await work(home.engine)
            finally:
                await home.engine.aclose()

        try:
            return home.runner.run(whole(), context=copy_context())
        finally:
            self._give_back(home)

    def close(self) -> None:
        """Let all go that are not in use."""
        with self._lock:
            homes = [*self._idle.values()]
            self._idle.clear()
        for home in homes:
            home.runner.close()

    def _give_back(self, home: _Home) -> None:
        home.since = time.monotonic()
        with self._lock:
            over = [
                self._idle.pop(old.judge) for old in [*self._idle.values()] if old.since + KEPT_SECONDS < home.since
            ]
            if isinstance(home.engine, _Missing) or home.judge in self._idle:  # it may be there next time
                over.append(home)
            else:
                self._idle[home.judge] = home
        for old in over:
            old.runner.close()


class _Missing:
    """Stands in for an engine that cannot be made here: the work fails with the reason, and can be retried."""

    def __init__(self, error: RubricsvcError) -> None:
        self._failure = Failure(Reason.UNREACHABLE, f"{error.message}; {error.hint}" if error.hint else error.message)

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        return [self._failure for _ in request.questions]

    async def aclose(self) -> None:
        return


def _engine_of(judge: Judge) -> Engine:
    try:
        return make_engine(judge)
    except RubricsvcError as error:
        missing = error
    except Exception as error:  # noqa: BLE001 - a malformed address, say: whatever it is, the job must end
        missing = RubricsvcError(f"{type(error).__name__}: {error}", hint="look at the judge's address and model")
    log.error("the judge's engine cannot be made", error=missing.message, hint=missing.hint)
    return _Missing(missing)
