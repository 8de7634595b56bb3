"""Complete items whose questions are all answered, without asking any judge."""

from __future__ import annotations

from rubricsvc.store import jobs, leases
from rubricsvc.store.leases import ItemResult
from rubricsvc.store.session import Database
from workers.queue.work import Work, WorkLoader

PAGE = 500


def complete_answered(db: Database, job_id: int) -> int:
    """Complete the pending items of a job whose questions are all answered; return how many.

    No judge is asked and no engine is made. The other items stay pending. A page is claimed, recorded and released in
    one transaction, so that a killed process holds no lease.
    """
    loader, completed, after = WorkLoader(db), 0, 0
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
            work = loader.load(session, judge, taken)
            completed += len(leases.record(session, [_result(one) for one in work if one.answered]).items)
            leases.release(session, [one.lease for one in work if not one.answered])
        after = [lease.item_id for lease in taken if lease.item_id > after][:PAGE][-1]  # the rest is of their groups
    with db.write() as session:
        jobs.finish(session, [job_id])
    return completed


def _result(work: Work) -> ItemResult:
    in_order = [work.known[criterion.key] for criterion in work.rubric.criteria]
    return ItemResult(work.lease, work.rubric, work.questions, in_order, frozenset(work.known))
