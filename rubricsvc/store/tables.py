"""All tables. A core value is stored as JSON beside its digest; ``row.value`` returns the value."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from sqlalchemy import JSON, Dialect, Float, ForeignKey, Index, MetaData, String, Text, UniqueConstraint, text
from sqlalchemy.orm import DeclarativeBase, Mapped, column_property, mapped_column, relationship
from sqlalchemy.types import BigInteger, DateTime, Integer, TypeDecorator

from rubricsvc.core.audit import Audit, Repeatability, StoredAudit
from rubricsvc.core.evolution import EvolutionRequest, EvolutionRound, HeldOutResult
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import Passport
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.rubric_analysis import RubricTest, TestOutcome
from rubricsvc.core.states import APPROVED, RubricState, RunState
from rubricsvc.core.validation_messages import first_error
from rubricsvc.core.verdict import Label, Verdict
from rubricsvc.errors import InvalidError


class UtcDateTime(TypeDecorator[datetime]):
    """An instant in UTC. SQLite stores no time zone; it is added when read."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC."""
        return value.astimezone(UTC) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Add the time zone."""
        return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value


class Base(DeclarativeBase):
    """The base of all tables: names of constraints, and column types."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar = {
        dict[str, Any]: JSON,
        list[Any]: JSON,
        datetime: UtcDateTime,
        int: BigInteger().with_variant(Integer, "sqlite"),  # SQLite counts its own ids only in plain INTEGER
    }


class DatedRow(Base):
    """A row with an id and the time when it was added."""

    __abstract__ = True

    id: Mapped[int] = mapped_column(primary_key=True)
    created_at: Mapped[datetime] = mapped_column(default=partial(datetime.now, UTC))


Value = TypeVar("Value")


@dataclass(eq=False)
class Model(Generic[Value]):
    """An attribute of a row: a JSON column as the value of a model, read each time; None where the column is null."""

    model: type[BaseModel]
    column: str = "content"

    def __get__(self, row: object, _owner: object = None) -> Value:
        """Return the value."""
        stored = getattr(row, self.column)
        return self.model.model_validate(stored) if stored is not None else None  # type: ignore[return-value]


class PromptRow(DatedRow):
    """A prompt; ``external_id`` is its id in the first file that brought it."""

    __tablename__ = "prompts"

    digest: Mapped[str] = mapped_column(String(64), unique=True)
    external_id: Mapped[str | None] = mapped_column(String(200), index=True)
    content: Mapped[dict[str, Any]]

    value = Model[Prompt](Prompt)


class PromptIdRow(Base):
    """Another id of a prompt, from another file than the first."""

    __tablename__ = "prompt_ids"

    external_id: Mapped[str] = mapped_column(String(200), primary_key=True)
    prompt_id: Mapped[int] = mapped_column(ForeignKey("prompts.id"), primary_key=True)


class CompletionRow(DatedRow):
    """A completion of a prompt."""

    __tablename__ = "completions"
    __table_args__ = (UniqueConstraint("prompt_id", "digest"),)

    prompt_id: Mapped[int] = mapped_column(ForeignKey("prompts.id"))
    digest: Mapped[str] = mapped_column(String(64))
    policy: Mapped[str] = mapped_column(String(200), default="", index=True)
    content: Mapped[dict[str, Any]]

    prompt: Mapped[PromptRow] = relationship()

    value = Model[Completion](Completion)


class RubricRow(DatedRow):
    """One version of a named rubric, for one prompt or (without ``prompt_id``) for any.

    ``parent_id`` is the version that it was edited from; ``provenance`` is long, so that it is read when it is used.
    """

    __tablename__ = "rubrics"
    __table_args__ = (UniqueConstraint("name", "version"), UniqueConstraint("name", "digest"))

    name: Mapped[str] = mapped_column(String(200))
    version: Mapped[int]
    digest: Mapped[str] = mapped_column(String(64), index=True)
    prompt_id: Mapped[int | None] = mapped_column(ForeignKey("prompts.id"), index=True)
    origin: Mapped[str] = mapped_column(String(40), default="imported")
    state: Mapped[RubricState] = mapped_column(String(12), default=APPROVED)
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("rubrics.id"), index=True)
    added_by: Mapped[str | None] = mapped_column(String(200))
    content: Mapped[dict[str, Any]]
    provenance: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True), deferred=True)

    value = Model[Rubric](Rubric)

    @property
    def ref(self) -> str:
        """The name and version, as name@version."""
        return f"{self.name}@{self.version}"


class RubricEventRow(DatedRow):
    """A change of a rubric version's state; or a comment, which leaves it as it was."""

    __tablename__ = "rubric_events"

    rubric_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"), index=True)
    from_state: Mapped[RubricState] = mapped_column(String(12))
    to_state: Mapped[RubricState] = mapped_column(String(12))
    by: Mapped[str] = mapped_column(String(200))
    comment: Mapped[str | None] = mapped_column(Text)


class ModelTextRow(Base):
    """A band of the `sketch` of a text that a model wrote; or the hash of what a person approved, as band and text."""

    __tablename__ = "model_texts"

    band: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    text: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, index=True)


class RubricTestRow(DatedRow):
    """What a judge found in the examples of a rubric version. None is ever changed: the newest measured one counts."""

    __tablename__ = "rubric_tests"

    rubric_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"), index=True)
    by: Mapped[str] = mapped_column(String(200))
    outcome: Mapped[TestOutcome] = mapped_column(String(12))
    content: Mapped[dict[str, Any]]

    test = Model[RubricTest](RubricTest)


class JudgeRow(DatedRow):
    """A judge, with its newest repeatability, and the passport of a trained one: long, and read when it is used."""

    __tablename__ = "judges"

    name: Mapped[str] = mapped_column(String(200), unique=True)
    digest: Mapped[str] = mapped_column(String(64), index=True)
    content: Mapped[dict[str, Any]]
    repeatability: Mapped[dict[str, Any] | None]
    passport: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    has_passport: Mapped[bool] = column_property(passport.is_not(None))

    measured = Model[Repeatability | None](Repeatability, "repeatability")
    passport_value = Model[Passport | None](Passport, "passport")

    @property
    def value(self) -> Judge:
        """The core value."""
        try:
            return Judge.model_validate(self.content)
        except ValidationError as error:
            path, message = first_error(error, model=Judge, quoted=False)  # a URL may hold a password
            hint = f"add it again with a valid {path}: `rubricsvc judges add -f FILE`"
            raise InvalidError(f"judge {self.name!r}: {path}: {message}", hint=hint) from error

    @property
    def error(self) -> str | None:
        """What makes the stored judge invalid, after the command that corrects it; None if it is valid."""
        try:
            self.value  # noqa: B018 - reading it validates
        except InvalidError as error:
            return f"{error.hint}: {error.message}"  # tables cut the end
        return None

    @property
    def valid(self) -> Judge | None:
        """The core value, or None if it is invalid; ``error`` says why."""
        return self.value if self.error is None else None


class AuditRow(DatedRow):
    """What an audit found of a judge. ``digest`` names what was asked. None is ever changed: the newest one counts."""

    __tablename__ = "audits"

    judge_id: Mapped[int] = mapped_column(ForeignKey("judges.id"), index=True)
    digest: Mapped[str] = mapped_column(String(64))
    passed: Mapped[bool]
    content: Mapped[dict[str, Any]]

    @property
    def value(self) -> StoredAudit:
        """The core value."""
        audit = Audit.model_validate(self.content)
        return StoredAudit(id=self.id, created_at=self.created_at, passed=self.passed, audit=audit)


PENDING, LEASED, DONE, FAILED, CANCELLED = "pending", "leased", "done", "failed", "cancelled"
QUEUED, IN_PROGRESS, COMPLETED = "queued", "in_progress", "completed"
SCORE, GENERATE = "score", "generate"
COMPLETED_WITH_FAILURES, BUDGET_EXHAUSTED = "completed_with_failures", "budget_exhausted"


class JobRow(DatedRow):
    """A batch of completions to be scored by one judge, or of prompts for which it writes rubrics.

    ``key`` makes submission idempotent. ``settings`` are those of a generation (`core.generation.Generation`).
    ``budget`` (US dollars) limits what is ``spent`` and reserved, see `jobs`. Once a job is ``exhausted``, no item of
    it is started. ``min_coverage`` is used instead of the rubrics' own.
    """

    __tablename__ = "jobs"

    key: Mapped[str] = mapped_column(String(200), unique=True)
    content_key: Mapped[str] = mapped_column(String(64))
    kind: Mapped[str] = mapped_column(String(12), default=SCORE)
    settings: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    name: Mapped[str] = mapped_column(String(200), default="")
    judge_id: Mapped[int] = mapped_column(ForeignKey("judges.id"))
    status: Mapped[str] = mapped_column(String(30), default=QUEUED, index=True)
    finished_at: Mapped[datetime | None]
    budget: Mapped[float | None] = mapped_column(Float)
    spent: Mapped[float] = mapped_column(Float, default=0.0)
    exhausted: Mapped[bool] = mapped_column(default=False)
    min_coverage: Mapped[float | None] = mapped_column(Float)

    judge: Mapped[JudgeRow] = relationship(lazy="joined", innerjoin=True)


class ReservationRow(Base):
    """US dollars of a job's budget that a worker has reserved; ``lost`` ones, of a killed worker, count as spent."""

    __tablename__ = "reservations"

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    worker: Mapped[str] = mapped_column(String(100), primary_key=True)
    dollars: Mapped[float] = mapped_column(Float)
    lost: Mapped[bool] = mapped_column(default=False)


_IS_PROMPT = text("prompt_id IS NOT NULL")


class ItemRow(Base):
    """One completion of a job, under one rubric: the unit of work, of leasing and of reward.

    An item of a generation has a prompt instead of a completion; its rubric is the generated one, once it is done.
    ``retries`` counts those that draw new samples, because none before was a rubric. The types of ``completion_id``
    and ``rubric_id`` are those of scored items, which all queries of rewards read. ``fence`` grows with each lease;
    only the holder of the newest fence may record. ``lost`` counts expired leases. ``question_set`` and the completion
    name the verdicts behind the reward; ``verdicts`` counts them, ``failed_verdicts`` the failed ones among them.
    """

    __tablename__ = "items"
    __table_args__ = (
        UniqueConstraint("job_id", "completion_id", "rubric_id"),
        Index(
            "ix_items_prompt", "job_id", "prompt_id", unique=True, sqlite_where=_IS_PROMPT, postgresql_where=_IS_PROMPT
        ),
        Index("ix_items_claim", "judge_id", "state", "id"),
        Index("ix_items_job", "job_id", "state"),
        Index("ix_items_lease", "state", "lease_until"),
        Index("ix_items_page", "job_id", "id"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"))
    judge_id: Mapped[int] = mapped_column(ForeignKey("judges.id"))
    completion_id: Mapped[int] = mapped_column(ForeignKey("completions.id"), nullable=True)
    rubric_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"), nullable=True)
    prompt_id: Mapped[int | None] = mapped_column(ForeignKey("prompts.id"))
    retries: Mapped[int] = mapped_column(default=0)
    state: Mapped[str] = mapped_column(String(12), default=PENDING)
    fence: Mapped[int] = mapped_column(default=0)
    lease_until: Mapped[float | None] = mapped_column(Float)
    worker: Mapped[str | None] = mapped_column(String(100))
    lost: Mapped[int] = mapped_column(default=0)
    question_set: Mapped[str | None] = mapped_column(String(64))
    reward: Mapped[float | None] = mapped_column(Float)
    coverage: Mapped[float | None] = mapped_column(Float)
    formula: Mapped[str | None] = mapped_column(String(60))
    vetoed_by: Mapped[str | None] = mapped_column(String(200))
    null_reason: Mapped[str | None] = mapped_column(String(300))
    verdicts: Mapped[int] = mapped_column(default=0)
    failed_verdicts: Mapped[int] = mapped_column(default=0)

    completion: Mapped[CompletionRow] = relationship()
    rubric: Mapped[RubricRow] = relationship()
    prompt: Mapped[PromptRow] = relationship()


class ReplyRow(DatedRow):
    """A reply to one question of a generation: what a worker that takes over does not ask again, and provenance.

    ``reply`` is the first one; ``answered`` counts all replies, and is above 1 where the question was asked again.
    """

    __tablename__ = "replies"
    __table_args__ = (UniqueConstraint("item_id", "digest"),)

    item_id: Mapped[int] = mapped_column(ForeignKey("items.id"))
    digest: Mapped[str] = mapped_column(String(64))
    answered: Mapped[int] = mapped_column(default=1)
    reply: Mapped[dict[str, Any]]


class TextRow(Base):
    """A text by its SHA-256."""

    __tablename__ = "texts"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    content: Mapped[str] = mapped_column(Text)


class QuestionRow(Base):
    """One question of a question set: what one judge is asked about one criterion of one rubric version.

    Items join their verdicts through it: ``items.question_set``, then ``completion_id`` and ``fingerprint``.
    """

    __tablename__ = "questions"

    question_set: Mapped[str] = mapped_column(String(64), primary_key=True)
    criterion: Mapped[str] = mapped_column(String(200), primary_key=True)
    position: Mapped[int]
    fingerprint: Mapped[str] = mapped_column(String(64))


class VerdictRow(DatedRow):
    """The answer to one question about one completion; every item that asks the question shares it.

    A scored or abstained verdict is never overwritten; a failed one is replaced by a later attempt. ``criterion``,
    ``rubric_id`` and ``judge_id`` are of the item that asked first.
    """

    __tablename__ = "verdicts"
    __table_args__ = (UniqueConstraint("completion_id", "fingerprint", "sample"),)

    completion_id: Mapped[int] = mapped_column(ForeignKey("completions.id"))
    fingerprint: Mapped[str] = mapped_column(String(64))
    criterion: Mapped[str] = mapped_column(String(200))
    sample: Mapped[int] = mapped_column(default=0)
    rubric_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"))
    judge_id: Mapped[int] = mapped_column(ForeignKey("judges.id"))
    outcome: Mapped[str] = mapped_column(String(10))
    value: Mapped[float | None] = mapped_column(Float)
    reason: Mapped[str | None] = mapped_column(String(30))
    details: Mapped[dict[str, Any]] = mapped_column(default=dict)
    attempts: Mapped[int] = mapped_column(default=1)

    @property
    def verdict(self) -> Verdict:
        """The verdict, on the criterion that asked first."""
        names = ("criterion", "outcome", "value", "reason", "sample", "fingerprint")
        return Verdict.model_validate({name: getattr(self, name) for name in names} | self.details)


class LabelRow(DatedRow):
    """A person's verdict on one criterion (or ``overall``), under the rubric version that the person was shown."""

    __tablename__ = "labels"
    __table_args__ = (UniqueConstraint("completion_id", "rubric_id", "criterion", "annotator"),)

    completion_id: Mapped[int] = mapped_column(ForeignKey("completions.id"))
    rubric_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"), index=True)
    criterion: Mapped[str] = mapped_column(String(200))
    annotator: Mapped[str] = mapped_column(String(200))
    value: Mapped[float | None] = mapped_column(Float)
    note: Mapped[str | None] = mapped_column(Text)
    completion: Mapped[CompletionRow] = relationship()
    rubric: Mapped[RubricRow] = relationship()

    @property
    def label(self) -> Label:
        """The core value."""
        return Label(criterion=self.criterion, annotator=self.annotator, value=self.value, note=self.note)


class WorkerRow(Base):
    """A running worker process, or one that was killed. The times are by `leases.database_time`."""

    __tablename__ = "workers"

    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    host: Mapped[str] = mapped_column(String(255))
    pid: Mapped[int]
    processes: Mapped[int]  # that score; each can take work of the same judge
    started_at: Mapped[float] = mapped_column(Float)
    seen_at: Mapped[float] = mapped_column(Float)


class ShareRow(Base):
    """The part, from 0 to 1, of the limits of a judge's servers that a worker uses; until a time, once it has ended."""

    __tablename__ = "shares"

    judge_id: Mapped[int] = mapped_column(primary_key=True)
    worker: Mapped[str] = mapped_column(String(100), primary_key=True)
    part: Mapped[float] = mapped_column(Float)
    until: Mapped[float | None] = mapped_column(Float)


class OutboxRow(DatedRow):
    """A message to workers that a judge has work: written with the work, deleted when a worker reads it."""

    __tablename__ = "outbox"

    task: Mapped[str] = mapped_column(String(100))
    judge_id: Mapped[int]
    sent_at: Mapped[float | None]


class KeyRow(DatedRow):
    """An API key: the SHA-256 of its secret, and the last four characters to recognize it."""

    __tablename__ = "keys"

    name: Mapped[str] = mapped_column(String(200))
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    suffix: Mapped[str] = mapped_column(String(8))
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]


class EvolutionRow(DatedRow):
    """The evolution of a rubric version: against labels, or of one prompt by the rollouts of a ``run``.

    ``key`` names the start with the settings and the labels, or with the run and the prompt, so that the same command,
    or the resumed run, continues it.
    """

    __tablename__ = "evolutions"

    key: Mapped[str] = mapped_column(String(64), unique=True)
    rubric_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"), index=True)
    run: Mapped[str | None] = mapped_column(String(200), index=True)
    prompt_id: Mapped[int | None] = mapped_column(ForeignKey("prompts.id"), index=True)
    settings: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    finished_at: Mapped[datetime | None]
    result: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))

    rubric: Mapped[RubricRow] = relationship()

    request = Model[EvolutionRequest | None](EvolutionRequest, "settings")
    held_out = Model[HeldOutResult | None](HeldOutResult, "result")


class EvolutionStepRow(DatedRow):
    """The version that a step (from 0) used, and its round, if any: the newest buffer, and the version written."""

    __tablename__ = "evolution_steps"
    __table_args__ = (UniqueConstraint("evolution_id", "step"),)

    evolution_id: Mapped[int] = mapped_column(ForeignKey("evolutions.id"))
    step: Mapped[int]
    rubric_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"))
    target_id: Mapped[int | None] = mapped_column(ForeignKey("rubrics.id"), index=True)
    entries: Mapped[list[Any] | None] = mapped_column(JSON(none_as_null=True))
    round: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))

    evolution: Mapped[EvolutionRow] = relationship()

    round_value = Model[EvolutionRound | None](EvolutionRound, "round")


class RunRow(DatedRow):
    """A training run. ``key`` is kept in its folder; ``seen_at``, the last report, is by `leases.database_time`."""

    __tablename__ = "runs"

    key: Mapped[str] = mapped_column(String(200), unique=True)
    name: Mapped[str] = mapped_column(String(200))
    state: Mapped[RunState] = mapped_column(String(10))
    reason: Mapped[str | None] = mapped_column(Text)
    stop_requested: Mapped[bool] = mapped_column(default=False)
    seen_at: Mapped[float] = mapped_column(Float)
    finished_at: Mapped[datetime | None]
    host: Mapped[str] = mapped_column(String(255))
    folder: Mapped[str] = mapped_column(Text)
    judge: Mapped[str | None] = mapped_column(String(200))
    judge_id: Mapped[int | None] = mapped_column(ForeignKey("judges.id"))
    steps_total: Mapped[int]
    config: Mapped[dict[str, Any]]


class RunMetricsRow(DatedRow):
    """The metrics of one step (from 1) of a run; ``reward`` is the one among them."""

    __tablename__ = "run_metrics"
    __table_args__ = (UniqueConstraint("run_id", "step"),)

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    step: Mapped[int]
    reward: Mapped[float | None] = mapped_column(Float)
    metrics: Mapped[dict[str, Any]]


class RolloutRow(Base):
    """A completion that a policy sampled in a step (from 1), at a ``place`` (from 0) in the batch, with its reward.

    The verdicts of one that a job has scored are those of its item; ``verdicts`` are those of any other.
    """

    __tablename__ = "rollouts"
    __table_args__ = (UniqueConstraint("run_id", "step", "place"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    step: Mapped[int]
    place: Mapped[int]
    prompt_id: Mapped[int] = mapped_column(ForeignKey("prompts.id"), index=True)
    completion_id: Mapped[int] = mapped_column(ForeignKey("completions.id"), index=True)
    rubric_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"))
    judge_id: Mapped[int | None] = mapped_column(ForeignKey("judges.id"))
    item_id: Mapped[int | None] = mapped_column(ForeignKey("items.id"))
    reward: Mapped[float | None] = mapped_column(Float)
    null_reason: Mapped[str | None] = mapped_column(String(300))
    advantage: Mapped[float | None] = mapped_column(Float)
    tokens: Mapped[int]
    truncated: Mapped[bool]
    logprob_sum: Mapped[float | None] = mapped_column(Float)
    verdicts: Mapped[list[Any]]

    rubric: Mapped[RubricRow] = relationship()


class EvaluationRow(DatedRow):
    """An evaluation of a run. ``name`` is `schemas.runs.STEP`, or that of a baseline."""

    __tablename__ = "run_evaluations"
    __table_args__ = (UniqueConstraint("run_id", "name", "step"),)

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    name: Mapped[str] = mapped_column(String(200))
    step: Mapped[int]
    line: Mapped[dict[str, Any]]


class EvaluationCompletionRow(Base):
    """A completion of an evaluation, at a ``place`` (from 0) in it."""

    __tablename__ = "evaluation_completions"
    __table_args__ = (UniqueConstraint("evaluation_id", "place"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    evaluation_id: Mapped[int] = mapped_column(ForeignKey("run_evaluations.id"))
    place: Mapped[int]
    prompt_id: Mapped[int] = mapped_column(ForeignKey("prompts.id"), index=True)
    completion_id: Mapped[int] = mapped_column(ForeignKey("completions.id"), index=True)
    rubric_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"))
    greedy: Mapped[bool]
    tokens: Mapped[int]
    truncated: Mapped[bool]

    rubric: Mapped[RubricRow] = relationship()


class EvaluationRewardRow(Base):
    """The reward by one score of the completion at ``place`` in an evaluation; ``verdicts`` as of `RolloutRow`."""

    __tablename__ = "evaluation_rewards"
    __table_args__ = (UniqueConstraint("evaluation_id", "place", "score"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    evaluation_id: Mapped[int] = mapped_column(ForeignKey("run_evaluations.id"))
    place: Mapped[int]
    score: Mapped[str] = mapped_column(String(200))
    reward: Mapped[float | None] = mapped_column(Float)
    null_reason: Mapped[str | None] = mapped_column(String(300))
    judge_id: Mapped[int | None] = mapped_column(ForeignKey("judges.id"))
    item_id: Mapped[int | None] = mapped_column(ForeignKey("items.id"))
    verdicts: Mapped[list[Any]]
