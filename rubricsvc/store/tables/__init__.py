"""All tables, one module per noun. A core value is stored as JSON beside its digest; ``row.value`` returns the value.

Import rows from here. Alembic compares the database with ``Base.metadata``, so a new module is imported below.
"""

from rubricsvc.store.base import Base
from rubricsvc.store.tables.completions import CompletionRow
from rubricsvc.store.tables.criterion_buffers import BufferedCriterionRow, RunStepRow
from rubricsvc.store.tables.evolutions import CandidateRow, EvolutionRow, ProposalReplyRow
from rubricsvc.store.tables.jobs import (
    BUDGET_EXHAUSTED,
    CANCELLED,
    COMPLETED,
    COMPLETED_WITH_FAILURES,
    DONE,
    FAILED,
    GENERATE,
    IN_PROGRESS,
    LEASED,
    PENDING,
    QUEUED,
    SCORE,
    ItemRow,
    JobRow,
    ReplyRow,
    ReservationRow,
    TextRow,
)
from rubricsvc.store.tables.judges import AuditRow, JudgeRow
from rubricsvc.store.tables.keys import KeyRow
from rubricsvc.store.tables.labels import LabelRow
from rubricsvc.store.tables.prompts import PromptIdRow, PromptRow
from rubricsvc.store.tables.rubrics import RubricEventRow, RubricRow, RubricTestRow
from rubricsvc.store.tables.run_evaluations import EvaluationCompletionRow, EvaluationRewardRow, EvaluationRow
from rubricsvc.store.tables.runs import RolloutRow, RunMetricsRow, RunRow
from rubricsvc.store.tables.verdicts import QuestionRow, VerdictRow
from rubricsvc.store.tables.workers import OutboxRow, WorkerRow

__all__ = [
    "BUDGET_EXHAUSTED",
    "CANCELLED",
    "COMPLETED",
    "COMPLETED_WITH_FAILURES",
    "DONE",
    "FAILED",
    "GENERATE",
    "IN_PROGRESS",
    "LEASED",
    "PENDING",
    "QUEUED",
    "SCORE",
    "AuditRow",
    "Base",
    "BufferedCriterionRow",
    "CandidateRow",
    "CompletionRow",
    "EvaluationCompletionRow",
    "EvaluationRewardRow",
    "EvaluationRow",
    "EvolutionRow",
    "ItemRow",
    "JobRow",
    "JudgeRow",
    "KeyRow",
    "LabelRow",
    "OutboxRow",
    "PromptIdRow",
    "PromptRow",
    "ProposalReplyRow",
    "QuestionRow",
    "ReplyRow",
    "ReservationRow",
    "RolloutRow",
    "RubricEventRow",
    "RubricRow",
    "RubricTestRow",
    "RunMetricsRow",
    "RunRow",
    "RunStepRow",
    "TextRow",
    "VerdictRow",
    "WorkerRow",
]
