"""Prompts and their completions: stored once, by content. Verdicts: found by the question that they answer."""

import json
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from typing import Any, TypeVarTuple

from sqlalchemy import ColumnElement, Select, cast, func, select, tuple_
from sqlalchemy.dialects.postgresql import JSONB, JSONPATH
from sqlalchemy.orm import Session

from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.fingerprint import QuestionSet
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.store.session import (
    add_new,
    batched,
    existing,
    find,
    get_or_add,
    insert_rows,
    missing,
    name_of,
    page_of,
    rows_with,
)
from rubricsvc.store.tables import CompletionRow, ItemRow, PromptIdRow, PromptRow, QuestionRow, TextRow, VerdictRow

Ts = TypeVarTuple("Ts")


def add_prompt(session: Session, prompt: Prompt, external_id: str | None = None) -> PromptRow:
    """Keep ``prompt``; the same content is one row, which is found by each ``external_id`` that it came with."""
    if external_id is not None:
        name_of("a prompt's id", external_id, least=0)
    content = prompt.model_dump(mode="json")
    row, _ = get_or_add(session, PromptRow, {"digest": prompt.digest}, content=content, external_id=external_id)
    if row.external_id is None and external_id is not None:
        row.external_id = external_id
        session.flush()
    elif external_id not in (None, row.external_id):
        add_new(session, PromptIdRow, [{"external_id": external_id, "prompt_id": row.id}])
    return row


def get_prompt(session: Session, ref: int | str, *, as_in_file: bool = False, only: bool = False) -> PromptRow:
    """Return the prompt with this id here, or else with this id in a file it came from.

    As a file refers to it, text is first an external id.

    Raises:
        InvalidError: Several prompts have this id in a file; or, of a file's number or with ``only``, one here and one
            in a file.
    """
    row = None if as_in_file and isinstance(ref, str) else find(session, PromptRow, ref)
    if row is None or (only if isinstance(ref, str) else as_in_file):
        ids = sorted({*prompts_in_files(session, str(ref)), *([row.id] if row else [])})
        if len(ids) > 1:
            message = f"{len(ids)} prompts have the id {str(ref)!r}: {', '.join(map(str, ids[:20]))}"
            hint = f"name one by its id here, a number{f' (0{ref} is {row.id})' if row else ''}"
            raise InvalidError(message, hint=hint)
        row = session.get(PromptRow, ids[0]) if ids else None
    if row is None:
        raise missing("prompt", ref)
    return row


def prompts_in_files(session: Session, ref: int | str) -> list[int]:
    """Return the ids of all prompts that a file may refer to: those with this external id, else the one with this id.

    Prompts of different content may come with the same external id.
    """
    if isinstance(ref, str):
        own = select(PromptRow.id).where(PromptRow.external_id == ref)
        others = select(PromptIdRow.prompt_id).where(PromptIdRow.external_id == ref)
        if ids := sorted({*session.scalars(own), *session.scalars(others)}):
            return ids
    row = find(session, PromptRow, ref)
    return [row.id] if row is not None else []


def keep_text(session: Session, text: str | None = None, digest: str = "") -> TextRow:
    """Keep a text under its SHA-256; or without one return what is stored under ``digest``.

    Raises:
        NotFoundError: Nothing is.
    """
    if text is not None:
        digest = sha256(text.encode()).hexdigest()
        return get_or_add(session, TextRow, {"digest": digest}, content=text)[0]
    if (row := session.get(TextRow, digest)) is None:
        raise NotFoundError(f"no text with the digest {digest} is stored", hint="give the text itself")
    return row


PromptKey = tuple[str, str | None]  # the digest and the external id of a prompt


def add_prompts(session: Session, given: Iterable[tuple[Prompt, str | None]]) -> dict[PromptKey, int]:
    """Add the prompts that are new; return the ids of all without, and of those that need no further id of a file."""
    keys = {
        (prompt.digest, external_id): prompt
        for prompt, external_id in given
        if external_id is None or 0 < len(external_id) <= MAX_NAME_LENGTH
    }
    rows = {digest: (external_id, prompt) for (digest, external_id), prompt in reversed(keys.items())}
    if not rows:
        return {}
    new = [
        {"digest": digest, "external_id": external_id, "content": prompt.model_dump(mode="json")}
        for digest, (external_id, prompt) in reversed(rows.items())
    ]
    add_new(session, PromptRow, new)
    query = select(PromptRow.digest, PromptRow.external_id, PromptRow.id).where(PromptRow.digest.in_(rows))
    stored = {digest: (external_id, id_) for digest, external_id, id_ in session.execute(query)}
    return {(digest, known): id_ for digest, row in stored.items() for known, id_ in (row, (None, row[1]))}


def add_many(session: Session, completions: Iterable[tuple[int, Completion]]) -> list[int]:
    """Store pairs of (prompt id, completion); return their ids, in order. Equal content of a prompt is one row."""
    ids: list[int] = []
    for chunk in batched(completions):
        rows = [
            {
                "prompt_id": prompt_id,
                "digest": completion.digest,
                "policy": completion.policy,
                "content": completion.model_dump(mode="json"),
            }
            for prompt_id, completion in chunk
        ]
        add_new(session, CompletionRow, rows)
        keys = [(prompt_id, completion.digest) for prompt_id, completion in chunk]
        columns = (CompletionRow.prompt_id, CompletionRow.digest)
        found = session.execute(select(CompletionRow.id, *columns).where(tuple_(*columns).in_(keys)))
        by_key = {(prompt_id, digest): id_ for id_, prompt_id, digest in found}
        ids.extend(by_key[key] for key in keys)
    return ids


def add_samples(session: Session, rows: Sequence[tuple[int, Completion]]) -> list[int]:
    """Store pairs of (prompt id, completion) unless the prompt has one of this policy and sampling; return the new ids.

    ``sampling["sample"]`` is the number of a sample; ``truncated`` is a result, and does not count. The prompts are
    locked, so that two processes store each sample once.
    """

    def name(prompt_id: int, policy: str, sampling: dict[str, Any]) -> tuple[int, str, str]:
        settings = {key: value for key, value in sampling.items() if key != "truncated"}
        return prompt_id, policy, json.dumps(settings, sort_keys=True)

    prompt_ids = sorted({prompt_id for prompt_id, _ in rows})
    session.execute(select(PromptRow.id).where(PromptRow.id.in_(prompt_ids)).order_by(PromptRow.id).with_for_update())
    query = select(CompletionRow.prompt_id, CompletionRow.policy, CompletionRow.content["sampling"])
    query = query.where(CompletionRow.policy.in_({completion.policy for _, completion in rows}))
    stored = {name(*row) for row in rows_with(session, query, CompletionRow.prompt_id, prompt_ids)}
    return add_many(session, (row for row in rows if name(row[0], row[1].policy, row[1].sampling) not in stored))


def ids_in_files(session: Session, prompt_ids: Collection[int], external_id: str) -> list[tuple[int, int]]:
    """Return (id, prompt id) of all completions of these prompts that came with this id."""
    query = select(CompletionRow.id, CompletionRow.prompt_id).where(
        CompletionRow.prompt_id.in_(prompt_ids), CompletionRow.content["id"].as_string() == external_id
    )
    return [(id_, prompt_id) for id_, prompt_id in session.execute(query.order_by(CompletionRow.id))]


def id_of_digests(session: Session, prompt: str, completion: str) -> int | None:
    """Return the id of the completion with these digests of its prompt and itself, if there is one."""
    query = select(CompletionRow.id).join(PromptRow)
    return session.scalar(query.where(PromptRow.digest == prompt, CompletionRow.digest == completion))


def get(session: Session, id_: int) -> CompletionRow:
    """Return the row."""
    return existing(session, CompletionRow, "completion", id_)


def prompt_ids(session: Session, ids: Iterable[int], *, policy: str | None = None) -> dict[int, int]:
    """Return the prompt ids by completion id; unknown completions, and those of another policy, are left out."""
    query = select(CompletionRow.id, CompletionRow.prompt_id)
    query = query if policy is None else query.where(CompletionRow.policy == policy)
    return dict(map(tuple, rows_with(session, query, CompletionRow.id, ids)))


VerdictName = tuple[int, str]  # (completion id, fingerprint of the question): what names a verdict

Asked = tuple[int, QuestionSet]  # (completion id, questions about it)

_ASKED_AT_ONCE = 100  # each brings a parameter for every question; SQLite takes 32,766 in one statement

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


def known_verdicts(session: Session, asked: Iterable[Asked]) -> list[dict[str, Verdict]]:
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


def write_verdicts(
    session: Session, verdicts: Iterable[tuple[VerdictName, int, int, Verdict]]
) -> dict[VerdictName, int]:
    """Store (name, rubric id, judge id, verdict) in bulk; return the attempts of each name that was written.

    A settled verdict stays (ON CONFLICT DO NOTHING); a failed one is replaced, and its attempts are counted.
    """
    written: dict[VerdictName, int] = {}
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


def verdicts_of_items(session: Session, item_ids: Iterable[int]) -> dict[int, list[Verdict]]:
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


def verdict_page(
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
