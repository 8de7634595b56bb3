"""Labels: what people found. One for each person, completion, rubric version and criterion."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Select, func, select, tuple_
from sqlalchemy.orm import Session

from rubricsvc.core.label import OVERALL, JudgedLabel, Label
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import ConflictError, InvalidError, cut
from rubricsvc.store import verdicts
from rubricsvc.store.ids import existing, missing, page_of
from rubricsvc.store.tables import CompletionRow, ItemRow, LabelRow, QuestionRow, RubricRow, VerdictRow, utcnow
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
        if label.criterion != OVERALL and label.criterion not in rubric.by_key:
            keys = ", ".join(list(rubric.by_key)[:8])
            hint = f"there are {keys}; {OVERALL!r} is a score of the whole completion"
            raise InvalidError(f"rubric {rubric_id} has no criterion {cut(label.criterion, 80)!r}", hint=hint)


def page(
    session: Session,
    *,
    completion_id: int | None = None,
    rubric_id: int | None = None,
    annotator: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[LabelRow]:
    """Return up to ``limit`` labels with ids above ``after``, ascending; of one completion, rubric or person."""
    return page_of(
        session, LabelRow, after, limit, completion_id=completion_id, rubric_id=rubric_id, annotator=annotator
    )


def judged_labels(session: Session, judge_id: int, *, job_id: int | None = None) -> list[JudgedLabel]:
    """Return every label beside this judge's verdicts, with ``job_id`` only on what that job scored."""
    query = select(LabelRow, CompletionRow.prompt_id).join(CompletionRow, CompletionRow.id == LabelRow.completion_id)
    if job_id is not None:
        of_job = select(ItemRow.completion_id, ItemRow.rubric_id).where(ItemRow.job_id == job_id)
        query = query.where(tuple_(LabelRow.completion_id, LabelRow.rubric_id).in_(of_job))
    labelled = select(RubricRow).where(RubricRow.id.in_(select(LabelRow.rubric_id)))
    rubrics = {row.id: row.value for row in session.scalars(labelled)}
    verdicts_of: dict[tuple[int, int], dict[str, Verdict]] = {}
    rewards: dict[tuple[int, int], float | None] = {}
    for completion_id, rubric_id, reward, key, row in session.execute(_newest_verdicts(judge_id, job_id)):
        rewards[completion_id, rubric_id] = reward
        verdicts_of.setdefault((completion_id, rubric_id), {})[key] = row.verdict_on(key)
    return [
        JudgedLabel(
            completion_id=row.completion_id,
            prompt_id=prompt_id,
            rubric_id=row.rubric_id,
            label=row.label,
            criterion=rubrics[row.rubric_id].by_key.get(row.criterion),
            verdicts=verdicts_of.get((row.completion_id, row.rubric_id), {}),
            reward=rewards.get((row.completion_id, row.rubric_id)),
        )
        for row, prompt_id in session.execute(query.order_by(LabelRow.id))
    ]


def _newest_verdicts(judge_id: int, job_id: int | None) -> Select[int, int, float | None, str, VerdictRow]:
    """Select the verdicts of the judge's newest item on each completion and rubric that people labelled.

    The rows are (completion id, rubric id, reward, criterion, verdict). Older items may have asked otherwise. Only the
    item tells which judge asked: verdicts are shared by all judges and rubrics that ask the same question, and carry
    the ids of those that asked first. The reward is the same item's, null too: an older one was computed from other
    verdicts.
    """
    labelled = select(LabelRow.completion_id, LabelRow.rubric_id)
    newest = select(func.max(ItemRow.id)).where(
        ItemRow.judge_id == judge_id,
        ItemRow.question_set.is_not(None),
        tuple_(ItemRow.completion_id, ItemRow.rubric_id).in_(labelled),
    )
    if job_id is not None:
        newest = newest.where(ItemRow.job_id == job_id)
    newest = newest.group_by(ItemRow.completion_id, ItemRow.rubric_id)
    columns = (ItemRow.completion_id, ItemRow.rubric_id, ItemRow.reward, QuestionRow.criterion, VerdictRow)
    query = verdicts.with_verdicts(select(*columns).select_from(ItemRow))
    return query.where(ItemRow.id.in_(newest)).order_by(VerdictRow.id)
