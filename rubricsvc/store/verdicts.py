"""Verdicts: written in bulk, found by the question that they answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVarTuple

from sqlalchemy import ColumnElement, Select, cast, func, select, tuple_
from sqlalchemy.dialects.postgresql import JSONB, JSONPATH
from sqlalchemy.orm import Session

from rubricsvc.core.fingerprint import QuestionSet
from rubricsvc.core.verdict import Verdict
from rubricsvc.store.session import add_new, batched, insert_rows, page_of, rows_with
from rubricsvc.store.tables import ItemRow, QuestionRow, VerdictRow

Name = tuple[int, str]
"""(completion id, fingerprint of the question): what names a verdict."""

Asked = tuple[int, QuestionSet]
"""(completion id, questions about it)."""

_ASKED_AT_ONCE = 100
"""Each brings a parameter for every question; SQLite takes 32,766 in one statement."""

Ts = TypeVarTuple("Ts")

_OWN_COLUMNS = {"criterion", "outcome", "value", "reason", "sample", "fingerprint"}


def add_questions(session: Session, sets: Iterable[QuestionSet]) -> None:
    """Store the question sets that are not there yet."""
    by_digest = {questions.digest: questions for questions in sets}
    for chunk in batched(sorted(by_digest)):
        there = select(QuestionRow.question_set).where(QuestionRow.question_set.in_(chunk)).distinct()
        missing = sorted(set(chunk) - set(session.scalars(there)))
        rows = [
            {"question_set": digest, "criterion": key, "position": position, "fingerprint": fingerprint}
            for digest in missing
            for position, (key, fingerprint) in enumerate(by_digest[digest].fingerprints.items())
        ]
        add_new(session, QuestionRow, rows)


def known(session: Session, asked: Iterable[Asked]) -> list[dict[str, Verdict]]:
    """Return the scored and abstained verdicts on each completion and question set, by criterion."""
    found: list[dict[str, Verdict]] = []
    for chunk in batched(asked, _ASKED_AT_ONCE):
        fingerprints = {name for _, questions in chunk for name in questions.fingerprints.values()}
        query = select(VerdictRow).where(
            VerdictRow.completion_id.in_({completion_id for completion_id, _ in chunk}),
            VerdictRow.fingerprint.in_(fingerprints),
            VerdictRow.outcome != "failed",
        )
        rows = {(row.completion_id, row.fingerprint): row for row in session.scalars(query)}
        found += [
            {
                key: rows[completion_id, name].verdict.model_copy(update={"criterion": key})
                for key, name in questions.fingerprints.items()
                if (completion_id, name) in rows
            }
            for completion_id, questions in chunk
        ]
    return found


def write(session: Session, verdicts: Iterable[tuple[Name, int, int, Verdict]]) -> dict[Name, int]:
    """Store (name, rubric id, judge id, verdict) in bulk; return the attempts of each name that was written.

    A settled verdict stays (ON CONFLICT DO NOTHING); a failed one is replaced, and its attempts are counted.
    """
    written: dict[Name, int] = {}
    for chunk in batched(verdicts):
        rows = [
            {
                "completion_id": name[0],
                "fingerprint": name[1],
                "rubric_id": rubric_id,
                "judge_id": judge_id,
                **{column: getattr(one, column) for column in ("criterion", "outcome", "value", "reason", "sample")},
                "details": one.model_dump(mode="json", exclude=_OWN_COLUMNS, exclude_defaults=True),
            }
            for name, rubric_id, judge_id, one in chunk
        ]
        new, parameters = insert_rows(session, VerdictRow, rows)
        changed = {name: new.excluded[name] for name in ("outcome", "value", "reason", "details", "created_at")}
        statement = new.on_conflict_do_update(
            index_elements=["completion_id", "fingerprint", "sample"],
            set_={**changed, "attempts": VerdictRow.attempts + 1},
            where=VerdictRow.outcome == "failed",
        ).returning(VerdictRow.completion_id, VerdictRow.fingerprint, VerdictRow.attempts)
        written |= {
            (id_, name): attempts for id_, name, attempts in session.connection().execute(statement, parameters)
        }
    return written


def with_verdicts(query: Select[*Ts]) -> Select[*Ts]:
    """Join a query of items to the verdicts behind their rewards; `QuestionRow.criterion` is the key in the rubric."""
    query = query.join(QuestionRow, QuestionRow.question_set == ItemRow.question_set)
    names = (VerdictRow.completion_id == ItemRow.completion_id) & (VerdictRow.fingerprint == QuestionRow.fingerprint)
    return query.join(VerdictRow, names)


def for_items(session: Session, item_ids: Iterable[int]) -> dict[int, list[Verdict]]:
    """Return the verdicts behind each item's reward, in the rubric's order; an item never scored has none."""
    found: dict[int, list[Verdict]] = {}
    query = with_verdicts(select(ItemRow.id, QuestionRow.criterion, VerdictRow).select_from(ItemRow))
    for item_id, criterion, row in rows_with(session, query.order_by(QuestionRow.position), ItemRow.id, item_ids):
        found.setdefault(item_id, []).append(row.verdict.model_copy(update={"criterion": criterion}))
    return found


def quote_counts(session: Session) -> tuple[ColumnElement[int], ColumnElement[int]]:
    """Return the number of a verdict's quotes, and of those that are in the completion."""
    details = VerdictRow.details
    if session.get_bind().dialect.name == "postgresql":
        starts = func.jsonb_path_query_array(cast(details["evidence"], JSONB), cast("$[*].start", JSONPATH))
        return func.json_array_length(details["evidence"]), func.jsonb_array_length(starts)
    quotes = func.json_each(details, "$.evidence").table_valued("value")
    found = select(func.count(func.json_extract(quotes.c.value, "$.start"))).scalar_subquery()
    return func.json_array_length(details, "$.evidence"), found


def page(
    session: Session,
    *,
    job_id: int | None = None,
    completion_id: int | None = None,
    outcome: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[VerdictRow]:
    """Return up to ``limit`` verdicts with ids above ``after``, ascending; of one job, completion or outcome."""
    names = select(ItemRow.completion_id, QuestionRow.fingerprint).where(ItemRow.job_id == job_id)
    names = names.join(QuestionRow, QuestionRow.question_set == ItemRow.question_set)
    of_job = [tuple_(VerdictRow.completion_id, VerdictRow.fingerprint).in_(names)] if job_id is not None else []
    return page_of(session, VerdictRow, after, limit, *of_job, completion_id=completion_id, outcome=outcome)
