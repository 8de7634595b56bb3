"""The engine of a judge without a model, which scores rubrics of checks alone."""

from __future__ import annotations

from rubricsvc.core.verdict import Reason
from workers.engines.base import EngineRequest, Failure, Reply


class NullEngine:
    """An engine that fails every question."""

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        """Fail every question as ``refused``."""
        return [Failure(Reason.REFUSED, "this judge runs checks only and has no model")] * len(request.questions)

    async def aclose(self) -> None:
        """Do nothing."""
