"""A group of completions that a comparative judge judges once for several leases.

The items of one job with the same prompt and rubric are one group. It is judged whole, with all its completions,
leased or not: a verdict is relative to its group, and must not depend on how the queue was cut. It is
judged once for all the leases that one claim brings; where two claims share a group it is judged twice, and the
verdicts that are recorded first stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from workers.engines.base import Engine
from workers.scoring.completions import score_group


@dataclass(slots=True)
class GroupWork:
    """A group, judged when the first of its ``leases`` asks and cancelled when the last has left.

    Attributes:
        members: Completions by id.
        known: Stored verdicts by completion id and criterion.
        leases: How many leases share it; each must call `verdicts` once.
    """

    judge: Judge
    rubric: Rubric
    prompt: Prompt
    members: Mapping[int, Completion]
    known: Mapping[int, Mapping[str, Verdict]]
    leases: int
    _task: asyncio.Task[list[list[Verdict]]] | None = field(default=None, init=False)

    async def verdicts(self, engine: Engine, completion_id: int) -> list[Verdict]:
        """Return the verdicts on one member."""
        if self._task is None:
            self._task = asyncio.create_task(self._score(engine))
        try:
            by_member = await asyncio.shield(self._task)
        finally:
            self.leases -= 1
            if not self.leases:
                self._task.cancel()
        return by_member[list(self.members).index(completion_id)]

    async def _score(self, engine: Engine) -> list[list[Verdict]]:
        known = [self.known[id_] for id_ in self.members]
        completions = list(self.members.values())
        return await score_group(engine, self.judge, self.rubric, self.prompt, completions, known=known)
