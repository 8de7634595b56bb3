"""A few rows to start a test from."""

from collections.abc import Iterable, Sequence

from sqlalchemy import update
from sqlalchemy.orm import Session

from rubricsvc.core.fingerprint import QuestionSet, digest
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.schemas.jobs import JobProgress
from rubricsvc.services.local import LocalService
from rubricsvc.store import completions, jobs, judges, leases, rubrics
from rubricsvc.store.leases import ItemResult, Lease
from rubricsvc.store.session import Database
from rubricsvc.store.tables import CompletionRow, WorkerRow
from workers.authoring.completions import CompletionSampler, SamplingResult
from workers.engines.base import Engine

RUBRIC = Rubric(criteria=tuple(Criterion(key=f"c{n}", text=f"Says thing number {n}.", weight=n) for n in (1, 2, 3)))


def submit_job(db: Database, items: int, *, judge: Judge, rubric: Rubric = RUBRIC, key: str | None = None) -> int:
    """A job over ``items`` completions of one prompt; its id."""
    with db.write() as session:
        prompt = completions.add_prompt(session, Prompt.of("What is a rubric?"))
        row = rubrics.add(session, rubric, name="test", prompt_id=prompt.id)
        pairs = ((prompt.id, Completion(text=f"answer {n}")) for n in range(items))
        ids = completions.add_many(session, pairs)
        judge_row = judges.add(session, judge)
        return jobs.submit(session, judge_id=judge_row.id, items=[(id_, row.id) for id_ in ids], key=key).id


def progress_of(db: Database, job: int) -> JobProgress:
    """The counts of a job."""
    with db.read() as session:
        return jobs.progress(session, job)


def status_of(db: Database, job: int) -> str:
    """The status of a job."""
    with db.read() as session:
        return jobs.get(session, job).status


def add_completion(session: Session, completion: Completion, prompt_id: int) -> CompletionRow:
    """A stored completion."""
    return completions.get(session, completions.add_many(session, [(prompt_id, completion)])[0])


def add_worker(db: Database, name: str = "test", *, age: float = 0.0, processes: int = 1) -> None:
    """A worker that was seen ``age`` seconds ago."""
    with db.write() as session:
        leases.report_worker(session, name, host="here", pid=1, uptime=60.0, processes=processes)
    age_worker(db, name, age)


def age_worker(db: Database, name: str, seconds: float) -> None:
    """A worker that was seen ``seconds`` earlier."""
    with db.write() as session:
        session.execute(update(WorkerRow).where(WorkerRow.name == name).values(seen_at=WorkerRow.seen_at - seconds))


def invalidate(db: Database, name: str, **endpoint: str) -> None:
    """A stored judge whose endpoint is no longer valid."""
    with db.write() as session:
        row = judges.get(session, name)
        row.content = row.content | {"endpoint": row.content["endpoint"] | endpoint}


def replace_judge(db: Database, judge: Judge) -> None:
    """Another judge under the name of a stored one, as in a database that was restored or edited by hand."""
    other = judge.model_copy(update={"model": f"not {judge.model}"})
    with db.write() as session:
        row = judges.get(session, judge.name)
        row.content, row.digest = other.model_dump(mode="json"), other.digest


def questions(rubric: Rubric, way: str = "") -> QuestionSet:
    """A question for each criterion; ``way`` distinguishes ways of asking."""
    return QuestionSet({criterion.key: digest(way, criterion.key) for criterion in rubric.criteria})


def item_result(
    lease: Lease, rubric: Rubric, verdicts: Sequence[Verdict], *, way: str = "", known: Iterable[str] = ()
) -> ItemResult:
    """What a worker records for a lease."""
    return ItemResult(lease, rubric, questions(rubric, way), verdicts, frozenset(known))


def record_values(db: Database, values: Sequence[float | None]) -> None:
    """Record these values for all criteria of the first items of judge 1, of `RUBRIC`; None fails."""
    with db.write() as session:
        claimed = leases.claim(session, 1, limit=len(values), worker="w", seconds=60)
        for lease, value in zip(claimed, values, strict=True):
            found = [verdict_of(criterion, value) for criterion in RUBRIC.criteria]
            leases.record(session, [item_result(lease, RUBRIC, found)])


def verdict_of(criterion: Criterion, value: float | None) -> Verdict:
    """A verdict with this value; None failed."""
    return Verdict.failed(criterion.key, "timeout") if value is None else Verdict.scored(criterion.key, value)


async def sampled(
    db: Database, engine: Engine, judge: Judge, ids: Sequence[int], *, policy: str, n: int
) -> SamplingResult:
    """What is sampled of the prompts with these ids, and stored in the database."""
    s = LocalService(db)
    sampler = CompletionSampler(
        judge,
        policy=policy,
        n=n,
        prompt=lambda id_: s.prompts.get(id_).prompt,
        store=lambda new: len(s.completions.add_samples(completions=tuple(new)).ids),
    )
    return await sampler.run(engine, ids, s.completions.page(policy=policy, limit=1000), lambda _: None)
