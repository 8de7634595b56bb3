"""Complete items whose questions are all answered, without asking any judge."""

from __future__ import annotations

from typing import NamedTuple

from rubricsvc.store import jobs, leases
from rubricsvc.store.leases import ItemResult, ScoringLease
from rubricsvc.store.session import Database
from workers.queue.scoring import ScoringLoader, ScoringWork

PAGE = 500


class Rescored(NamedTuple):
    """How many completions were ``completed``, and of all, how many verdicts are ``stored`` and how many ``to_ask``."""

    completed: int
    stored: int
    to_ask: int


def complete_answered(db: Database, job_id: int) -> Rescored:
    """Complete the pending items of a job whose questions are all answered.

    No judge is asked and no engine is made. The other items stay pending. A page is claimed, recorded and released in
    one transaction, so that a killed process holds no lease.
    """
    loader, completed, after = ScoringLoader(db), 0, 0
    asked: dict[int, tuple[int, int]] = {}  # verdicts stored and in all, by item: a group's may be claimed twice
    with db.read() as session:
        job = jobs.get(session, job_id)
        judge_id, judge = job.judge_id, job.judge.value
    while True:
        with db.write() as session:
            taken = leases.claim(
                session,
                judge_id,
                limit=PAGE,
                worker="rescore",
                seconds=60.0,
                whole_groups=judge.mode == "comparative",
                job_id=job_id,
                after=after,
            )
            if not taken:
                break
            work = loader.load(session, judge, [lease for lease in taken if isinstance(lease, ScoringLease)])
            completed += len(leases.record(session, [_result(one) for one in work if one.answered]).items)
            asked |= {one.lease.item_id: (len(one.known), len(one.rubric.criteria)) for one in work}
            leases.release(session, [one.lease for one in work if not one.answered])
        after = [lease.item_id for lease in taken if lease.item_id > after][:PAGE][-1]  # the rest is of their groups
    with db.write() as session:
        jobs.finish(session, [job_id])
    stored, questions = (sum(counts) for counts in zip((0, 0), *asked.values(), strict=True))
    return Rescored(completed, stored, questions - stored)


def _result(work: ScoringWork) -> ItemResult:
    in_order = [work.known[criterion.key] for criterion in work.rubric.criteria]
    return ItemResult(work.lease, work.rubric, work.questions, in_order, frozenset(work.known))
