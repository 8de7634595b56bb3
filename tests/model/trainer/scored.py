"""Tasks, completions and judges for tests of reward sources."""

from datetime import UTC, datetime

from rubricsvc.core.audit import Deviation, Repeatability
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Reason
from rubricsvc.store import jobs
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import JobRow
from tests.instant_engine import agreeable
from trainer.data.tasks import Task
from trainer.rewards import RewardSource, ScoredRollout
from workers.engines.base import Failure, Question, Reply

RUBRIC = Rubric(
    criteria=[Criterion(key="a", text="Is good.", weight=3), Criterion(key="b", text="Is rude.", weight=-1)]
)
OTHER = Rubric(criteria=[Criterion(key="c", text="Is short.")])
JUDGE = Judge(name="instant", engine="instant", model="m", threshold=0.5)
COMPARES = Judge(name="compares", engine="instant", model="m", mode="comparative")
TASKS = [Task(Prompt.of("one"), RUBRIC)] * 2 + [Task(Prompt.of("two"), OTHER)] * 2
MIXED = [TASKS[2], TASKS[0], TASKS[3], TASKS[1]]
COMPLETIONS = [Completion(text=text) for text in ("one", "two", "seven", "eleven")]


def measured(reward_std: float | None) -> Repeatability:
    """A measurement of a judge's repeatability."""
    deviation = Deviation(n=10, value=reward_std)
    return Repeatability(
        fingerprint="f",
        source="job 1",
        measured_at=datetime(2026, 1, 1, tzinfo=UTC),
        repeats=3,
        completions=10,
        criteria={"binary": deviation},
        reward=deviation,
    )


def score(rewards: RewardSource) -> list[ScoredRollout]:
    """Score four completions of two tasks; two of them have the same text."""
    return rewards.score(TASKS, [Completion(text=text, step=7) for text in ("first", "second", "", "first")])


def stored_jobs(db: Database) -> list[tuple[str, str, int]]:
    """Name, status and number of items of each job."""
    with db.read() as session:
        return [(job.name, job.status, jobs.progress(session, job.id).total) for job in page_of(session, JobRow)]


def faulty(question: Question) -> Reply | Failure:
    """Agree, but time out whenever rudeness is asked about."""
    return Failure(Reason.TIMEOUT, "too slow") if "rude" in question.text else agreeable(question)


def by_length(text: str) -> float:
    """Prefer longer answers."""
    return len(text) / 10
