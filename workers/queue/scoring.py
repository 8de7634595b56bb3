"""The scoring of a completion: rubric, questions and known verdicts, loaded in the transaction that claims the item."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from pydantic import ValidationError
from sqlalchemy.orm import Session
from structlog import get_logger

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.questions import QuestionSet
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.validation_messages import first_error
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.store import completions, jobs, leases, prompts, rubrics, verdicts
from rubricsvc.store.leases import ItemResult, ScoringLease
from rubricsvc.store.session import Database
from workers.engines.base import Engine, error_message
from workers.queue.costs import Write
from workers.queue.engine_pool import DrainEngines
from workers.scoring.completions import score, score_group
from workers.scoring.questions import group_questions, questions_of

log = get_logger(__name__)


@dataclass(slots=True)
class GroupWork:
    """The completions of one job with the same prompt and rubric, which a comparative judge judges together.

    It is judged whole, leased or not: a verdict is relative to its group, and must not depend on how the queue was cut.
    It is judged when the first of its ``leases`` asks, and cancelled when the last has left. Where two claims share a
    group it is judged twice, and the verdicts that are recorded first stand.

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


@dataclass(slots=True)
class ScoringWork:
    """The scoring of one completion under one rubric.

    Attributes:
        group_key: Names the completions of its job with the same rubric and prompt.
        questions: What the judge is asked.
        known: Stored verdicts by criterion; they are not asked for again.
        group: The group that the completion is judged with, for a comparative judge.
    """

    lease: ScoringLease
    judge: Judge
    group_key: leases.GroupKey
    rubric: Rubric
    prompt: Prompt
    completion: Completion
    questions: QuestionSet = field(init=False)
    known: Mapping[str, Verdict] = field(init=False)
    group: GroupWork | None = None

    @property
    def answered(self) -> bool:
        """Whether every question is answered."""
        return self.known.keys() >= self.rubric.by_key.keys()

    @property
    def priced(self) -> bool:
        """Whether its calls have a price."""
        return self.judge.priced

    async def run(self, engines: DrainEngines, _write: Write) -> ItemResult:
        """Score the completion; every error is a failed verdict."""
        engine = engines.of(self.judge)
        try:
            if self.group is not None:
                scored = await self.group.verdicts(engine, self.lease.completion_id)
            else:
                about = self.rubric, self.prompt, self.completion
                scored = await score(engine, self.judge, *about, known=self.known)
        except Exception as error:
            log.exception("scoring failed")
            detail = error_message(error)
            keys = [criterion.key for criterion in self.rubric.criteria]
            scored = [self.known.get(key) or Verdict.failed(key, Reason.ENGINE_ERROR, detail=detail) for key in keys]
        return ItemResult(self.lease, self.rubric, self.questions, scored, frozenset(self.known))


class ScoringLoader:
    """Loads the work of leases; keeps rubrics and prompts, which never change."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._rubric = lru_cache(maxsize=4096)(self._read_rubric)
        self._prompt = lru_cache(maxsize=4096)(self._read_prompt)

    def load(self, session: Session, judge: Judge, taken: Sequence[ScoringLease]) -> list[ScoringWork]:
        """Return the work of the leases. One whose rubric or prompt cannot be read fails at once."""
        rows = completions.many(session, [lease.completion_id for lease in taken])
        work: list[ScoringWork] = []
        for lease in taken:
            prompt_id, completion = rows[lease.completion_id]
            try:
                rubric, prompt = self._rubric(lease.rubric_id), self._prompt(prompt_id)
            except ValidationError as error:
                path, message = first_error(error)
                leases.fail(session, [lease], f"its rubric or prompt cannot be read: {path}: {message}")
                jobs.finish(session, [lease.job_id])
                continue
            key = (lease.job_id, lease.rubric_id, prompt_id)
            work.append(ScoringWork(lease, judge, key, rubric, prompt, completion))
        prepare = _prepare_groups if judge.mode == "comparative" else _prepare
        prepare(session, judge, work)
        return work

    def _read_rubric(self, rubric_id: int) -> Rubric:
        with self._db.read() as session:
            return rubrics.get(session, rubric_id).value

    def _read_prompt(self, prompt_id: int) -> Prompt:
        with self._db.read() as session:
            return prompts.get(session, prompt_id).value


def _prepare(session: Session, judge: Judge, work: Sequence[ScoringWork]) -> None:
    for one in work:
        one.questions = questions_of(one.rubric, judge)
    known = verdicts.known(session, [(one.lease.completion_id, one.questions) for one in work])
    for one, answered in zip(work, known, strict=True):
        one.known = answered


def _prepare_groups(session: Session, judge: Judge, work: Sequence[ScoringWork]) -> None:
    """Give each lease its whole group: the completions of its job with the same prompt and rubric, leased or not."""
    leased = Counter(one.group_key for one in work)
    ids = leases.groups(session, leased)
    rows = completions.many(session, {id_ for members in ids.values() for id_ in members})
    groups: dict[leases.GroupKey, tuple[QuestionSet, GroupWork]] = {}
    for one in work:
        key = one.group_key
        if key not in groups:
            members = {id_: rows[id_][1] for id_ in ids[key]}
            questions = group_questions(one.rubric, judge, [*members.values()])
            known = verdicts.known(session, [(id_, questions) for id_ in members])
            by_member = dict(zip(members, known, strict=True))
            groups[key] = questions, GroupWork(judge, one.rubric, one.prompt, members, by_member, leased[key])
        one.questions, one.group = groups[key]
        one.known = one.group.known[one.lease.completion_id]
