"""What adaptive concurrency and the circuit breaker are worth.

    python -m bench.bench_throttle [--questions N] [--only SCENARIO]

The scripted server plays a server in trouble; the engine asks it the same questions with its whole throttle and without
one part of it. ``calls`` are those that the server received, ``refused`` those that brought nothing. The last
line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import heapq
import json
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar
from unittest.mock import patch

import structlog

from rubricsvc.core.judge import Endpoint
from tests.scripted_server import ScriptedReply, ScriptedServer, error, labels, scripted_server
from workers.engines.base import EngineRequest, Question, Reply
from workers.engines.http.openai import OpenAIEngine
from workers.engines.http.throttle import Throttle

CAPACITY = 4
WORK_S = 0.02
OK = labels(Yes=0.9)


class Scenario:
    """A server in trouble; ``refused`` counts the calls that it did not serve."""

    endpoint: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.refused = 0
        self.began = time.monotonic()

    def reply(self, server: ScriptedServer) -> ScriptedReply:
        raise NotImplementedError

    def is_up(self) -> bool:
        return True

    def refuse(self, status: int, retry_after: float | None = None) -> ScriptedReply:
        self.refused += 1
        return error(status, retry_after=retry_after)


class Overloaded(Scenario):
    """429 for what is more than 4 calls at once."""

    def reply(self, server: ScriptedServer) -> ScriptedReply:
        return self.refuse(429) if server.concurrent > CAPACITY else replace(OK, delay_s=WORK_S)


class Queueing(Scenario):
    """4 calls at once; others queue, and time out where the queue is long. The work of those is wasted."""

    endpoint: ClassVar[dict[str, Any]] = {"timeout_s": 0.25}

    def __init__(self) -> None:
        super().__init__()
        self.free_at = [0.0] * CAPACITY

    def reply(self, server: ScriptedServer) -> ScriptedReply:
        now = time.monotonic()
        end = max(now, heapq.heappop(self.free_at)) + WORK_S
        heapq.heappush(self.free_at, end)
        self.refused += end - now > self.endpoint["timeout_s"]
        return replace(OK, delay_s=end - now)


class RateLimited(Scenario):
    """50 calls a second, else 429 with a Retry-After of a second."""

    def __init__(self) -> None:
        super().__init__()
        self.second, self.served = 0, 0

    def reply(self, server: ScriptedServer) -> ScriptedReply:
        second = int(time.monotonic() - self.began)
        if second != self.second:
            self.second, self.served = second, 0
        self.served += 1
        return self.refuse(429, retry_after=1) if self.served > 50 else OK


class Outage(Scenario):
    """Down from 0.2 s to 12 s."""

    def is_up(self) -> bool:
        return not 0.2 < time.monotonic() - self.began < 12.0

    def reply(self, server: ScriptedServer) -> ScriptedReply:
        return replace(OK, delay_s=0.1) if self.is_up() else self.refuse(503)


class Down(Scenario):
    """Down for good, with an outage timeout of 2 s."""

    endpoint: ClassVar[dict[str, Any]] = {"outage_timeout_s": 2.0}

    def is_up(self) -> bool:
        return False

    def reply(self, server: ScriptedServer) -> ScriptedReply:
        return self.refuse(503)


VARIANTS: dict[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
    "as it is": contextlib.nullcontext,
    "fixed concurrency": lambda: patch.object(Throttle, "adapt", lambda *_: None),
    "no breaker": lambda: patch.object(Throttle, "watch", lambda *_: None),
}
SCENARIOS = {kind.__name__: kind for kind in (Overloaded, Queueing, RateLimited, Outage, Down)}


def measure(kind: type[Scenario], questions: int) -> dict[str, float]:
    """Ask a server of this kind ``questions`` questions."""

    async def ask(url: str) -> list[Any]:
        engine = OpenAIEngine("m", Endpoint(base_url=url, concurrency=64, prompt_lists=False, **kind.endpoint))
        try:
            return await engine.ask(EngineRequest("", "u", tuple(Question(str(n), ("Yes",)) for n in range(questions))))
        finally:
            await engine.aclose()

    scenario = kind()
    with scripted_server(lambda *_: scenario.reply(server)) as server:
        server.alive = lambda _: scenario.is_up()
        scenario.began = time.monotonic()
        replies = asyncio.run(ask(server.url))
        seconds = time.monotonic() - scenario.began
    verdicts = sum(isinstance(reply, Reply) for reply in replies)
    return {"seconds": round(seconds, 1), "verdicts": verdicts, "calls": server.count, "refused": scenario.refused}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=400)
    parser.add_argument("--only", choices=SCENARIOS)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    results = []
    print(f"{'':14}{'':20}{'seconds':>9}{'verdicts':>10}{'calls':>8}{'refused':>9}")
    for name, kind in SCENARIOS.items():
        if options.only in (None, name):
            for variant, patched in VARIANTS.items():
                with patched():
                    figures = measure(kind, options.questions)
                results.append({"scenario": name, "variant": variant, **figures})
                print(f"{name:14}{variant:20}" + "".join(f"{figures[key]:>{w}}" for key, w in COLUMNS), flush=True)
    print(json.dumps(results))


COLUMNS = (("seconds", 9), ("verdicts", 10), ("calls", 8), ("refused", 9))


if __name__ == "__main__":
    main()
