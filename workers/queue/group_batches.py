"""Leases of a comparative judge: the items of one job with the same prompt and rubric are one group.

A group is judged whole, with all its completions, whoever holds their leases: a verdict is relative to its group, and
must not depend on how the queue was cut. It is judged once for all the leases that one claim brings; where two claims
share a group it is judged twice, and the verdicts that are recorded first stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.store import completions, leases, verdicts
from rubricsvc.store.leases import Lease
from workers.engines.base import Engine
from workers.scoring.completions import group_fingerprint, score_group

Known = dict[str, Verdict]


@dataclass(frozen=True, slots=True)
class Work:
    """What a lease is about; ``origin`` is the fingerprint of its verdicts, ``known`` those that are there."""

    rubric: Rubric
    prompt: Prompt
    completion: Completion
    origin: str
    known: Known
    group: Together | None = None


@dataclass(slots=True)
class Together:
    """A group that is judged once for several leases.

    It is begun by the first that asks, and stops when the last of ``seats`` has left. Give it to as many.
    """

    engine: Engine
    judge: Judge
    rubric: Rubric
    prompt: Prompt
    members: Mapping[int, Completion]
    known: Mapping[int, Known]
    seats: int
    _task: asyncio.Task[list[list[Verdict]]] | None = field(default=None, init=False)

    async def verdicts(self, completion_id: int) -> list[Verdict]:
        """The verdicts of one member."""
        if self._task is None:
            self._task = asyncio.create_task(self._score())
        try:
            found = await asyncio.shield(self._task)
        finally:
            self.seats -= 1
            if not self.seats:
                self._task.cancel()
        return found[list(self.members).index(completion_id)]

    async def _score(self) -> list[list[Verdict]]:
        known = [self.known[id_] for id_ in self.members]
        given = list(self.members.values())
        return await score_group(self.engine, self.judge, self.rubric, self.prompt, given, known=known)


Claimed = tuple[Lease, int, Rubric, Prompt]
"""A lease, and the id and values of what it is about."""


def load(session: Session, engine: Engine, judge: Judge, claimed: Sequence[Claimed]) -> Iterator[tuple[Lease, Work]]:
    """The work of each lease, with its whole group."""
    keys = [(lease.job_id, lease.rubric_id, prompt_id) for lease, prompt_id, *_ in claimed]
    ids = leases.groups(session, set(keys))
    there = completions.many(session, {id_ for members in ids.values() for id_ in members})
    groups: dict[leases.GroupKey, tuple[str, Together]] = {}
    for key, (_, _, rubric, prompt) in zip(keys, claimed, strict=True):
        if key not in groups:
            members = {id_: there[id_][1] for id_ in ids[key]}
            origin = group_fingerprint(rubric, judge, list(members.values()))
            found = verdicts.settled(session, [(id_, origin) for id_ in members])
            known = {id_: {verdict.criterion: verdict for verdict in found.get((id_, origin), [])} for id_ in members}
            groups[key] = origin, Together(engine, judge, rubric, prompt, members, known, keys.count(key))
    for key, (lease, _, rubric, prompt) in zip(keys, claimed, strict=True):
        origin, group = groups[key]
        member = lease.completion_id
        yield lease, Work(rubric, prompt, group.members[member], origin, group.known[member], group)
