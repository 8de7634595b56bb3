"""Labels: what people found. One for each person, completion, rubric version and criterion."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlalchemy import ColumnElement, select, tuple_
from sqlalchemy.orm import Session, joinedload

from rubricsvc.core.label import OVERALL, Label
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import ConflictError, InvalidError, cut
from rubricsvc.store.base import utcnow
from rubricsvc.store.ids import existing, missing, page_of
from rubricsvc.store.tables import CompletionRow, ItemRow, LabelRow, RubricRow
from rubricsvc.store.upsert import add_new, batched

LabelEntry = tuple[int, int, Label]
"""(completion id, rubric id, label)."""


def add_many(session: Session, labels: Iterable[LabelEntry], *, replace: bool = False) -> list[int]:
    """Add labels and return their ids, in order. The same label again is the same row.

    Raises:
        ConflictError: the person has labelled this otherwise, and ``replace`` is False.
        NotFoundError: no such completion or rubric.
        InvalidError: the rubric has no such criterion, or was written for another prompt.
    """
    ids: list[int] = []
    rubrics: dict[int, tuple[int | None, Rubric]] = {}
    for chunk in batched(labels):
        _check_entries(session, chunk, rubrics)
        add_new(
            session, LabelRow, [{"completion_id": c, "rubric_id": r, **label.model_dump()} for c, r, label in chunk]
        )
        stored = _stored_rows(session, chunk)
        for completion_id, rubric_id, label in chunk:
            row = stored[completion_id, rubric_id, label.criterion, label.annotator]
            if row.label != label and not (label.note is None and row.value == label.value):
                if not replace:
                    raise _contradiction(row, label)
                row.value, row.note, row.created_at = label.value, label.note, utcnow()
            ids.append(row.id)
    session.flush()
    return ids


def _stored_rows(session: Session, chunk: list[LabelEntry]) -> dict[tuple[int, int, str, str], LabelRow]:
    columns = (LabelRow.completion_id, LabelRow.rubric_id, LabelRow.criterion, LabelRow.annotator)
    keys = {(c, r, label.criterion, label.annotator) for c, r, label in chunk}
    rows = session.scalars(select(LabelRow).where(tuple_(*columns).in_(keys)))
    return {(row.completion_id, row.rubric_id, row.criterion, row.annotator): row for row in rows}


def _contradiction(row: LabelRow, label: Label) -> ConflictError:
    what = f"{cut(label.annotator, 80)!r} has labelled {cut(label.criterion, 80)!r} of completion {row.completion_id}"
    return ConflictError(
        f"{what} already: {row.value}, not {label.value}",
        hint="`labels import --replace` (in Python, replace=True) takes the newer one; two people need two names",
    )


def _check_entries(session: Session, chunk: list[LabelEntry], rubrics: dict[int, tuple[int | None, Rubric]]) -> None:
    wanted = {completion_id for completion_id, _, _ in chunk}
    of_prompt = dict(
        session.execute(select(CompletionRow.id, CompletionRow.prompt_id).where(CompletionRow.id.in_(wanted))).all()
    )
    for completion_id, rubric_id, label in chunk:
        if completion_id not in of_prompt:
            raise missing("completion", completion_id)
        if rubric_id not in rubrics:
            row = existing(session, RubricRow, "rubric", rubric_id)
            rubrics[rubric_id] = (row.prompt_id, row.value)
        prompt_id, rubric = rubrics[rubric_id]
        if prompt_id not in (None, of_prompt[completion_id]):
            raise InvalidError(
                f"rubric {rubric_id} was written for another prompt than completion {completion_id}'s",
                hint="label it under a rubric of its own prompt",
            )
        check_criterion(rubric, label.criterion)


def check_criterion(rubric: Rubric, key: str) -> None:
    """Raise an InvalidError if the rubric has no criterion that a label with this key could belong to."""
    if key != OVERALL and key not in rubric.by_key:
        keys = ", ".join(list(rubric.by_key)[:8])
        message = f"the rubric has no criterion {cut(key, 80)!r}; expected one of {keys}, or {OVERALL!r}"
        raise InvalidError(message, hint=f"{OVERALL!r} is a score of the whole completion", path="criterion")


def page(
    session: Session,
    *,
    completion_id: int | None = None,
    rubric_id: int | None = None,
    annotator: str | None = None,
    job_id: int | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[LabelRow]:
    """Return up to ``limit`` labels with ids above ``after``, ascending.

    They are of one completion, rubric or person, or of the completions of one job.
    """
    of_job = select(ItemRow.completion_id).where(ItemRow.job_id == job_id)
    where = [LabelRow.completion_id.in_(of_job)] if job_id is not None else []
    return page_of(
        session, LabelRow, after, limit, *where, completion_id=completion_id, rubric_id=rubric_id, annotator=annotator
    )


def completion_ids(
    session: Session, *, names: Collection[str] = (), annotators: Collection[str] = (), job_id: int | None = None
) -> list[int]:
    """Return the ids of the labelled completions, ascending.

    They have labels under the rubrics of these ``names``, by these ``annotators``, and are of the job.
    """
    query = select(LabelRow.completion_id).where(*_where(names, annotators)).distinct()
    if job_id is not None:
        query = query.where(LabelRow.completion_id.in_(select(ItemRow.completion_id).where(ItemRow.job_id == job_id)))
    return list(session.scalars(query.order_by(LabelRow.completion_id)))


def of_completions(
    session: Session, ids: Collection[int], *, names: Collection[str] = (), annotators: Collection[str] = ()
) -> list[tuple[LabelRow, CompletionRow, RubricRow]]:
    """Return the labels of these completions with their completion, prompt and rubric, by completion and rubric."""
    query = select(LabelRow, CompletionRow, RubricRow).join(CompletionRow, CompletionRow.id == LabelRow.completion_id)
    query = query.join(RubricRow, RubricRow.id == LabelRow.rubric_id)
    query = query.where(LabelRow.completion_id.in_(ids), *_where(names, annotators))
    query = query.options(joinedload(CompletionRow.prompt))
    rows = session.execute(query.order_by(LabelRow.completion_id, LabelRow.rubric_id, LabelRow.id))
    return [(label, completion, rubric) for label, completion, rubric in rows]


def _where(names: Collection[str], annotators: Collection[str]) -> list[ColumnElement[bool]]:
    named = LabelRow.rubric_id.in_(select(RubricRow.id).where(RubricRow.name.in_(names)))
    return [*([named] if names else []), *([LabelRow.annotator.in_(annotators)] if annotators else [])]
