"""The engines of a process, reused by the drains of a judge.

What an engine learns of its server lives in it: counts of requests and tokens by the minute, a pause that the server
asked for, its concurrency, an open circuit, a chat template. An engine belongs to one event loop, so the pool holds
both, and lends them to one drain at a time. Connections and memory are released after each drain (``Engine.aclose``),
unless the pool keeps models.
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

from rubricsvc.core.judge import LOCAL, Judge
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import RubricsvcError
from workers.engines import make_engine
from workers.engines.base import Engine, EngineRequest, Failure, Reply

log = get_logger(__name__)
T = TypeVar("T")

IDLE_SECONDS = 600.0
"""Minimum time that an idle engine is pooled; it is closed when a later drain ends. Longer than a minute's count and
than any pause that is waited out."""


@dataclass(eq=False)
class _PooledEngine:
    """An engine with its event loop; ``used_at`` is when it was last used."""

    judge: Judge
    engine: Engine
    runner: asyncio.Runner = field(default_factory=asyncio.Runner)
    used_at: float = 0.0

    def close(self) -> None:
        """Release the engine's model, if it was kept, and close the event loop."""
        if _is_local(self.judge):
            self.runner.run(self.engine.aclose())
        self.runner.close()


class EnginePool:
    """Engines by judge; a judge with another endpoint has another engine. Safe to use from several threads.

    Attributes:
        keep_models: Keep the models of local engines in memory from one drain to the next, until `close`.
    """

    def __init__(self) -> None:
        self.keep_models = False
        self._lock = threading.Lock()
        self._idle: dict[Judge, _PooledEngine] = {}

    def run(self, judge: Judge, work: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
        """Return the result of ``work`` with the judge's engine, in the engine's event loop."""
        with self._lock:
            pooled = self._idle.pop(judge, None)
        pooled = pooled or _PooledEngine(judge, _engine_of(judge))

        async def whole() -> T:
            try:
                return await work(pooled.engine)
            finally:
                if not (self.keep_models and _is_local(judge)):
                    await pooled.engine.aclose()

        try:
            return pooled.runner.run(whole(), context=copy_context())
        finally:
            pooled.used_at = time.monotonic()
            with self._lock:
                expired = [
                    self._idle.pop(other.judge)
                    for other in [*self._idle.values()]
                    if other.used_at + IDLE_SECONDS < pooled.used_at
                ]
                if isinstance(pooled.engine, _UnavailableEngine) or judge in self._idle:
                    expired.append(pooled)  # an unavailable engine may be available next time
                else:
                    self._idle[judge] = pooled
            for other in expired:
                other.close()

    def close(self) -> None:
        """Close the engines that are not in use."""
        with self._lock:
            idle = [*self._idle.values()]
            self._idle.clear()
        for pooled in idle:
            pooled.close()


def _is_local(judge: Judge) -> bool:
    return all(leaf.engine in LOCAL for leaf in judge.leaf_judges)


_ENGINE_FIELDS = ("engine", "model", "revision", "adapter", "weights_sha256", "endpoint", "members")
"""Judges that are equal in these share an engine."""


class DrainEngines:
    """The engines of one drain: that of its judge, and of other judges that its items ask. Used in one event loop."""

    def __init__(self, judge: Judge, engine: Engine) -> None:
        self._judge, self._engine = judge, engine
        self._others: list[tuple[Judge, Engine]] = []

    def of(self, judge: Judge) -> Engine:
        """Return the engine of a judge, made at first use; judges of the same model and endpoint share one."""
        if judge is self._judge:
            return self._engine
        for other, engine in ((self._judge, self._engine), *self._others):
            if all(getattr(other, name) == getattr(judge, name) for name in _ENGINE_FIELDS):
                return engine
        self._others.append((judge, _engine_of(judge)))
        return self._others[-1][1]

    async def aclose(self) -> None:
        """Close the engines of other judges than the drain's own."""
        for _, engine in self._others:
            await engine.aclose()


class _UnavailableEngine:
    """Replaces an engine that cannot be made here: every question fails with the reason, and can be retried."""

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
        reason = error
    except Exception as error:  # noqa: BLE001 - whatever it is, such as a malformed address, the job must end
        reason = RubricsvcError(f"{type(error).__name__}: {error}", hint="check the judge's address and model")
    log.error("the judge's engine cannot be made", error=reason.message, hint=reason.hint)
    return _UnavailableEngine(reason)
