"""The engine of a judge that asks no model: rubrics of checks alone are scored by it."""

from __future__ import annotations

from rubricsvc.core.verdict import Reason
from workers.engines.base import EngineRequest, Failure, Reply


class NullEngine:
    """Fails whatever it is asked."""

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        return [Failure(Reason.REFUSED, "this judge runs checks and asks no model") for _ in request.questions]

    async def aclose(self) -> None:
        return
