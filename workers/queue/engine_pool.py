"""The engines of a process: one for each judge, with its event loop, which threads and drains take in turn."""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import uvloop

from rubricsvc.core.judge import LOCAL, Judge
from rubricsvc.core.verdict import Reason
from workers.engines import engine_or_failure
from workers.engines.base import Engine, PanelEngine
from workers.engines.http.throttle import Throttle

T = TypeVar("T")

os.environ.setdefault("UV_THREADPOOL_SIZE", "64")  # of a process; a lookup of a host name waits in one of half of them

IDLE_SECONDS = 600.0
"""How long an idle engine is pooled at least: longer than a minute's count, and than any pause that is waited out."""


@dataclass(eq=False)
class _PooledEngine:
    """An engine with its event loop; ``used_at`` is when it was last used, ``local`` whether it may hold a model."""

    judge: Judge
    engine: Engine
    local: bool
    runner: asyncio.Runner = field(default_factory=partial(asyncio.Runner, loop_factory=uvloop.new_event_loop))
    used_at: float = 0.0


class EnginePool:
    """Engines by judge; a judge with another endpoint has another engine. Safe to use from several threads.

    Attributes:
        keep_models: Keep the models of local engines in memory from one drain to the next, until `close`.
    """

    def __init__(self) -> None:
        self.keep_models = False
        self._lock = threading.Lock()
        self._idle: list[_PooledEngine] = []

    def run(self, judge: Judge, work: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
        """Return the result of ``work`` with the judge's engine, in the engine's event loop."""
        with self._lock:
            pooled = next((one for one in self._idle if one.judge == judge), None)
            if pooled is not None:
                self._idle.remove(pooled)
        if pooled is None:
            is_local = all(leaf.engine in LOCAL for leaf in judge.leaf_judges)
            pooled = _PooledEngine(judge, engine_or_failure(judge), is_local)
        engine, kept = pooled.engine, self.keep_models and pooled.local

        async def whole() -> T:
            try:
                return await work(engine)
            finally:
                if not kept:
                    await engine.aclose()

        try:
            return pooled.runner.run(whole(), context=copy_context())
        finally:
            now = time.monotonic()
            # one that is unavailable now may be available next time
            unavailable = isinstance(engine, PanelEngine) and engine.failure.reason is Reason.UNREACHABLE
            pooled.used_at = -math.inf if unavailable else now
            with self._lock:
                self._idle.append(pooled)
            self.close(idle_since=now - IDLE_SECONDS)

    def close(self, idle_since: float = math.inf) -> None:
        """Release the kept models and close the event loops of the engines that are not in use, or idle since then."""
        with self._lock:
            expired = [pooled for pooled in self._idle if pooled.used_at < idle_since]
            self._idle = [pooled for pooled in self._idle if pooled.used_at >= idle_since]
        for pooled in expired:
            if pooled.local:
                pooled.runner.run(pooled.engine.aclose())
            pooled.runner.close()


def throttles_of(engine: Engine) -> list[Throttle]:
    """Return the limits of a judge's servers: its own, or those of a panel's members."""
    if isinstance(engine, PanelEngine):
        return [one for member in engine.members for one in throttles_of(member)]
    return [throttle] if isinstance(throttle := getattr(engine, "throttle", None), Throttle) else []
