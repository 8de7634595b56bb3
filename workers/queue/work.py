"""What a lease is about, loaded in the transaction that claims it: completion, rubric, questions and known verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from pydantic import ValidationError
from sqlalchemy.orm import Session

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.questions import QuestionSet
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.validation_messages import first_error
from rubricsvc.core.verdict import Verdict
from rubricsvc.store import completions, jobs, leases, prompts, rubrics, verdicts
from rubricsvc.store.leases import Lease
from rubricsvc.store.session import Database
from workers.queue.group_work import GroupWork
from workers.scoring.questions import group_questions, questions_of


@dataclass(frozen=True, slots=True)
class Work:
    """What one lease is about.

    Attributes:
        known: Stored verdicts by criterion; they are not asked for again.
        group: The group that the completion is judged with, for a comparative judge.
    """

    lease: Lease
    rubric: Rubric
    prompt: Prompt
    completion: Completion
    questions: QuestionSet
    known: dict[str, Verdict]
    group: GroupWork | None = None

    @property
    def answered(self) -> bool:
        """Whether every question is answered."""
        return self.known.keys() >= self.rubric.by_key.keys()


@dataclass(frozen=True, slots=True)
class _Loaded:
    lease: Lease
    prompt_id: int
    rubric: Rubric
    prompt: Prompt
    completion: Completion

    @property
    def group(self) -> leases.GroupKey:
        return (self.lease.job_id, self.lease.rubric_id, self.prompt_id)


class WorkLoader:
    """Loads the work of leases; keeps rubrics and prompts, which never change."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._rubric = lru_cache(maxsize=4096)(self._read_rubric)
        self._prompt = lru_cache(maxsize=4096)(self._read_prompt)

    def load(self, session: Session, judge: Judge, taken: Sequence[Lease]) -> list[Work]:
        """Return the work of the leases. One whose rubric or prompt cannot be read fails at once."""
        rows = completions.many(session, [lease.completion_id for lease in taken])
        loaded = []
        for lease in taken:
            prompt_id, completion = rows[lease.completion_id]
            try:
                rubric, prompt = self._rubric(lease.rubric_id), self._prompt(prompt_id)
            except ValidationError as error:
                path, message = first_error(error)
                leases.fail(session, lease, f"its rubric or prompt cannot be read: {path}: {message}")
                jobs.finish(session, [lease.job_id])
                continue
            loaded.append(_Loaded(lease, prompt_id, rubric, prompt, completion))
        return _grouped(session, judge, loaded) if judge.mode == "comparative" else _single(session, judge, loaded)

    def _read_rubric(self, rubric_id: int) -> Rubric:
        with self._db.read() as session:
            return rubrics.get(session, rubric_id).value

    def _read_prompt(self, prompt_id: int) -> Prompt:
        with self._db.read() as session:
            return prompts.get(session, prompt_id).value


def _single(session: Session, judge: Judge, loaded: Sequence[_Loaded]) -> list[Work]:
    questions = [questions_of(one.rubric, judge) for one in loaded]
    known = verdicts.known(
        session, [(one.lease.completion_id, each) for one, each in zip(loaded, questions, strict=True)]
    )
    return [
        Work(one.lease, one.rubric, one.prompt, one.completion, each, verdicts_)
        for one, each, verdicts_ in zip(loaded, questions, known, strict=True)
    ]


def _grouped(session: Session, judge: Judge, loaded: Sequence[_Loaded]) -> list[Work]:
    """Give each lease its whole group: the completions of its job with the same prompt and rubric, leased or not."""
    ids = leases.groups(session, {one.group for one in loaded})
    rows = completions.many(session, {id_ for members in ids.values() for id_ in members})
    groups: dict[leases.GroupKey, tuple[QuestionSet, GroupWork]] = {}
    for one in loaded:
        if one.group not in groups:
            members = {id_: rows[id_][1] for id_ in ids[one.group]}
            questions = group_questions(one.rubric, judge, [*members.values()])
            known = verdicts.known(session, [(id_, questions) for id_ in members])
            by_member = dict(zip(members, known, strict=True))
            leased = sum(other.group == one.group for other in loaded)
            groups[one.group] = questions, GroupWork(judge, one.rubric, one.prompt, members, by_member, leased)
    work = []
    for one in loaded:
        questions, group = groups[one.group]
        known_here = group.known[one.lease.completion_id]
        work.append(Work(one.lease, one.rubric, one.prompt, one.completion, questions, dict(known_here), group))
    return work
