"""The values of a judge's newest verdicts, as plain rows in chunks: a million of them fit in memory as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, Text, case, cast, func, select
from sqlalchemy.orm import Session

from rubricsvc.core.label import OVERALL
from rubricsvc.store import items
from rubricsvc.store.tables import CompletionRow, ItemRow, JudgeRow, LabelRow, QuestionRow, RubricRow, VerdictRow
from rubricsvc.store.verdicts import with_verdicts

FAILED, ABSTAINED = -1.0, -2.0
"""In place of the value of a verdict that has none."""
MISSING = -1e300
"""In place of null, so that the rows of a chunk are numbers only."""
_ROWS_AT_ONCE = 20_000

Chunks = Iterator[Sequence[Sequence[Any]]]


@dataclass(frozen=True, slots=True)
class Selection:
    """The judge's newest item on each completion under each rubric version; of one job, of one version."""

    judge_id: int
    job_id: int | None = None
    rubric_id: int | None = None

    @property
    def newest(self) -> Select[int]:
        """The query of the ids of the items."""
        query = items.newest(self.judge_id, self.job_id)
        return query if self.rubric_id is None else query.where(ItemRow.rubric_id == self.rubric_id)


def count(session: Session, selection: Selection) -> int:
    """Return the number of completions of a selection."""
    return session.scalar(select(func.count()).select_from(selection.newest.subquery())) or 0


def read_items(session: Session, selection: Selection) -> Chunks:
    """Yield chunks of (item id, completion id, prompt id, rubric id, reward, length), by rubric and item.

    The length is in characters: of the text, or without a text of the stored messages.
    """
    text = CompletionRow.content["text"].as_string()
    characters = case(
        (func.coalesce(text, "") == "", func.length(cast(CompletionRow.content, Text))), else_=func.length(text)
    )
    reward = func.coalesce(ItemRow.reward, MISSING)
    columns = (ItemRow.id, ItemRow.completion_id, CompletionRow.prompt_id, ItemRow.rubric_id, reward)
    query = select(*columns, characters).join(CompletionRow, CompletionRow.id == ItemRow.completion_id)
    return _chunks(session, query.where(ItemRow.id.in_(selection.newest)).order_by(ItemRow.rubric_id, ItemRow.id))


def read_values(session: Session, selection: Selection, *, votes: bool = False) -> Chunks:
    """Yield chunks of (item id, position of the criterion in the rubric, value), in any order.

    The value is FAILED or ABSTAINED where a verdict has none. With ``votes``, the standard deviation of the votes
    behind each verdict is a fourth column.
    """
    value = case(
        (VerdictRow.outcome == "scored", VerdictRow.value), (VerdictRow.outcome == "failed", FAILED), else_=ABSTAINED
    )
    spread = [func.coalesce(VerdictRow.details["spread"].as_float(), MISSING)] if votes else []
    query = with_verdicts(select(ItemRow.id, QuestionRow.position, value, *spread).select_from(ItemRow))
    return _chunks(session, query.where(ItemRow.id.in_(selection.newest)))


def _chunks(session: Session, query: Select[Any]) -> Chunks:
    result = session.connection().execute(query, execution_options={"yield_per": _ROWS_AT_ONCE})
    return iter(result.partitions())


def judges_of(session: Session, *, rubric_id: int | None = None, job_id: int | None = None) -> list[JudgeRow]:
    """Return the judges that scored completions under this version, or under those of a job, the most first."""
    query = select(ItemRow.judge_id).where(ItemRow.question_set.is_not(None))
    if rubric_id is not None:
        query = query.where(ItemRow.rubric_id == rubric_id)
    if job_id is not None:
        of_job = select(ItemRow.rubric_id).where(ItemRow.job_id == job_id).distinct()
        query = query.where(ItemRow.rubric_id.in_(of_job))
    count = func.count(ItemRow.completion_id.distinct())
    ids = session.scalars(query.group_by(ItemRow.judge_id).order_by(count.desc(), ItemRow.judge_id.desc()))
    return [session.get_one(JudgeRow, id_) for id_ in ids]


def criterion_labels(session: Session, completions: Selection, rubric: RubricRow) -> list[tuple[int, str, float]]:
    """Return (completion id, key in this rubric, value) of labels on what its criteria ask, under any version.

    Of several labels by one person on one question, the newest.
    """
    keys = {one.question: one.key for one in rubric.value.criteria}
    scored = select(ItemRow.completion_id).where(ItemRow.id.in_(completions.newest))
    where = (LabelRow.criterion != OVERALL, LabelRow.value.is_not(None), LabelRow.completion_id.in_(scored))
    columns = (LabelRow.completion_id, LabelRow.annotator, LabelRow.rubric_id, LabelRow.criterion, LabelRow.value)
    rows = session.execute(select(*columns).where(*where).order_by(LabelRow.created_at, LabelRow.id)).all()
    versions = {row.id: row.value for row in session.scalars(_labelled_versions(scored))}
    newest = {}
    for completion_id, person, rubric_id, criterion, value in rows:
        labelled = versions[rubric_id].by_key.get(criterion)
        key = keys.get(labelled.question) if labelled is not None else None
        if key is not None and value is not None:
            newest[completion_id, person, key] = value
    return [(completion_id, key, value) for (completion_id, _, key), value in newest.items()]


def _labelled_versions(scored: Select[int]) -> Select[RubricRow]:
    labelled = select(LabelRow.rubric_id).where(LabelRow.completion_id.in_(scored))
    return select(RubricRow).where(RubricRow.id.in_(labelled))


def overall_labels(session: Session, completions: Selection | int) -> list[tuple[int, str, float]]:
    """Return (completion id, person, overall score) of the completions of a selection, or of a job.

    Under any rubric; of several by one person, the newest.
    """
    scored = select(ItemRow.completion_id)
    if isinstance(completions, Selection):
        scored = scored.where(ItemRow.id.in_(completions.newest))
    else:
        scored = scored.where(ItemRow.job_id == completions)
    where = (LabelRow.criterion == OVERALL, LabelRow.value.is_not(None), LabelRow.completion_id.in_(scored))
    query = select(LabelRow.completion_id, LabelRow.annotator, LabelRow.value).where(*where)
    rows = session.execute(query.order_by(LabelRow.created_at, LabelRow.id))
    newest = {(completion_id, person): value for completion_id, person, value in rows}
    return [(id_, person, value) for (id_, person), value in newest.items() if value is not None]
