"""Rewards from stored verdicts: complete or compare without asking any judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion
from rubricsvc.core.questions import QuestionSet
from rubricsvc.core.reward import Reward, reward_or_null
from rubricsvc.core.rubric import Rubric
from rubricsvc.store import completions, jobs, judges, leases, verdicts
from rubricsvc.store.leases import ItemResult, Lease
from rubricsvc.store.session import Database
from workers.queue.work import Work, WorkLoader
from workers.scoring.questions import group_questions

_PAGE = 500
_LEASE_SECONDS = 600.0
_WORKER = "rescore"


def complete_answered(db: Database, job_id: int) -> int:
    """Complete the pending items of a job whose questions are all answered; return how many.

    No judge is asked and no engine is made. The other items stay pending.
    """
    loader, completed = WorkLoader(db), 0
    with db.read() as session:
        job = jobs.get(session, job_id)
        judge_id, judge = job.judge_id, job.judge.value
    unanswered: list[Lease] = []
    try:
        while True:
            with db.write() as session:
                taken = leases.claim(
                    session,
                    judge_id,
                    limit=_PAGE,
                    worker=_WORKER,
                    seconds=_LEASE_SECONDS,
                    whole_groups=judge.mode == "comparative",
                    job_id=job_id,
                )
                if not taken:
                    break
                work = loader.load(session, judge, taken)
                completed += len(leases.record(session, [_result(one) for one in work if one.answered]))
            unanswered += [one.lease for one in work if not one.answered]
    finally:
        with db.write() as session:
            if unanswered:
                leases.release(session, unanswered)
            jobs.finish(session, [job_id])
    return completed


def _result(work: Work) -> ItemResult:
    in_order = [work.known[criterion.key] for criterion in work.rubric.criteria]
    return ItemResult(work.lease, work.rubric, work.questions, in_order, frozenset(work.known))


@dataclass(frozen=True, slots=True)
class StoredReward:
    """The reward of one completion by the verdicts that are stored, and how many are still missing."""

    prompt_id: int
    reward: Reward
    missing: int


def stored_rewards(session: Session, job_id: int, rubric: Rubric) -> dict[int, StoredReward]:
    """Return the rewards of a job's completions under any rubric, from the job's judge's verdicts, by completion id.

    Nothing is written and no judge is asked. A comparative judge's groups are the job's completions of each prompt.
    """
    judge = judges.get(session, jobs.get(session, job_id).judge_id).value
    rows = completions.many(session, jobs.completion_ids(session, job_id))
    asked = _questions(rows, rubric, judge)
    known = verdicts.known(session, asked.items())
    rewards = {}
    for (id_, (prompt_id, _)), answered in zip(rows.items(), known, strict=True):
        rewards[id_] = StoredReward(
            prompt_id, reward_or_null(rubric, answered.values()), len(rubric.criteria) - len(answered)
        )
    return rewards


def _questions(rows: Mapping[int, tuple[int, Completion]], rubric: Rubric, judge: Judge) -> dict[int, QuestionSet]:
    by_prompt: dict[int, list[Completion]] = {}
    for prompt_id, completion in rows.values():
        by_prompt.setdefault(prompt_id, []).append(completion)
    sets = {prompt_id: group_questions(rubric, judge, group) for prompt_id, group in by_prompt.items()}
    return {id_: sets[prompt_id] for id_, (prompt_id, _) in rows.items()}
