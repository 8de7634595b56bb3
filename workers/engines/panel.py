"""The engines of a panel's or a cascade's members."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rubricsvc.core.verdict import Reason
from workers.engines.base import Engine, EngineRequest, Failure, Reply


class PanelEngine:
    """One engine for each member, in their order. The members are asked, and not the seats."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.engines = tuple(engines)

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        return [Failure(Reason.ENGINE_ERROR, "a panel has no model of its own: ask its members")] * len(
            request.questions
        )

    async def aclose(self) -> None:
        await asyncio.gather(*(engine.aclose() for engine in self.engines))


def member_engines(engine: Engine, count: int) -> tuple[Engine, ...]:
    """The engines of ``count`` members. One that is no ``Seats`` answers for all of them."""
    return engine.engines if isinstance(engine, PanelEngine) else (engine,) * count
