"""Engines without a model of their own: of a panel or a cascade, and of a judge that only runs checks."""

from __future__ import annotations

import asyncio

from rubricsvc.core.verdict import Reason
from workers.engines.base import Engine, EngineRequest, Failure, Replies


class PanelEngine:
    """One engine for each member, in order; none for checks. Requests go to the members, not to the panel."""

    def __init__(self, *members: Engine) -> None:
        self.members = members

    async def ask(self, request: EngineRequest) -> Replies:
        """Fail every question as ``refused``."""
        return [Failure(Reason.REFUSED, "this judge has no model of its own")] * len(request.questions)

    async def aclose(self) -> None:
        """Close the members' engines."""
        await asyncio.gather(*(member.aclose() for member in self.members))


def member_engines(engine: Engine, count: int) -> tuple[Engine, ...]:
    """Return the engines of ``count`` members; an engine that is no panel serves all of them."""
    return engine.members if isinstance(engine, PanelEngine) else (engine,) * count
