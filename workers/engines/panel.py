"""The engines of a panel's or a cascade's members."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rubricsvc.core.verdict import Reason
from workers.engines.base import Engine, EngineRequest, Failure, Replies


class PanelEngine:
    """One engine for each member, in order. Requests go to the members, not to the panel."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.engines = tuple(engines)

    async def ask(self, request: EngineRequest) -> Replies:
        """Fail every question."""
        failure = Failure(Reason.ENGINE_ERROR, "a panel has no model of its own; send the request to its members")
        return [failure] * len(request.questions)

    async def aclose(self) -> None:
        """Close the members' engines."""
        await asyncio.gather(*(engine.aclose() for engine in self.engines))


def member_engines(engine: Engine, count: int) -> tuple[Engine, ...]:
    """Return the engines of ``count`` members; an engine that is no panel serves all of them."""
    return engine.engines if isinstance(engine, PanelEngine) else (engine,) * count
