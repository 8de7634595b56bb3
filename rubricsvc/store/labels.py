"""Labels: what people found. One for each person, completion, rubric version and criterion."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, Text, case, cast, func, or_, select, tuple_
from sqlalchemy.orm import Session, joinedload

from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import OVERALL, JudgedLabel, Label
from rubricsvc.errors import ConflictError, InvalidError, cut
from rubricsvc.store import completions, jobs
from rubricsvc.store.completions import with_verdicts
from rubricsvc.store.session import add_new, batched, existing, missing, page_of
from rubricsvc.store.tables import (
    CompletionRow,
    ItemRow,
    JudgeRow,
    LabelRow,
    PromptRow,
    QuestionRow,
    RubricRow,
    VerdictRow,
)

LabelEntry = tuple[int, int, Label]  # (completion id, rubric id, label)


def add_many(session: Session, labels: Iterable[LabelEntry], *, replace: bool = False) -> list[int]:
    """Add labels and return their ids, in order. The same label again is the same row."""
    ids: list[int] = []
    rubrics: dict[int, tuple[int | None, Rubric]] = {}
    for chunk in batched(labels):
        of_prompt = completions.prompt_ids(session, {completion_id for completion_id, _, _ in chunk})
        for completion_id, rubric_id, label in chunk:
            if completion_id not in of_prompt:
                raise missing("completion", completion_id)
            if rubric_id not in rubrics:
                version = existing(session, RubricRow, "rubric", rubric_id)
                rubrics[rubric_id] = (version.prompt_id, version.value)
            prompt_id, rubric = rubrics[rubric_id]
            if prompt_id not in (None, of_prompt[completion_id]):
                raise InvalidError(
                    f"rubric {rubric_id} was written for another prompt than completion {completion_id}'s",
                    hint="label it under a rubric of its own prompt",
                )
            check_criterion(rubric, label.criterion)
        add_new(
            session, LabelRow, [{"completion_id": c, "rubric_id": r, **label.model_dump()} for c, r, label in chunk]
        )
        columns = (LabelRow.completion_id, LabelRow.rubric_id, LabelRow.criterion, LabelRow.annotator)
        keys = {(c, r, label.criterion, label.annotator) for c, r, label in chunk}
        rows = session.scalars(select(LabelRow).where(tuple_(*columns).in_(keys)))
        stored = {(row.completion_id, row.rubric_id, row.criterion, row.annotator): row for row in rows}
        for completion_id, rubric_id, label in chunk:
            row = stored[completion_id, rubric_id, label.criterion, label.annotator]
            if row.label != label and not (label.note is None and row.value == label.value):
                if not replace:
                    by, criterion = cut(label.annotator, 80), cut(label.criterion, 80)
                    changed = "with another note" if row.value == label.value else f"{row.value}, not {label.value}"
                    raise ConflictError(
                        f"{by!r} has labelled {criterion!r} of completion {completion_id} already: {changed}",
                        hint="`labels import --replace` (in Python, replace=True) takes the newer one; two people need"
                        " two names",
                    )
                row.value, row.note, row.created_at = label.value, label.note, datetime.now(UTC)
                session.info.setdefault("replaced", set()).add(row.id)
            ids.append(row.id)
    session.flush()
    return ids


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
    completion = joinedload(LabelRow.completion, innerjoin=True).load_only(CompletionRow.digest)
    prompt = completion.joinedload(CompletionRow.prompt, innerjoin=True).load_only(PromptRow.digest)
    rubric = joinedload(LabelRow.rubric, innerjoin=True).load_only(RubricRow.name, RubricRow.version, RubricRow.digest)
    equal = {"completion_id": completion_id, "rubric_id": rubric_id, "annotator": annotator}
    return page_of(session, LabelRow, after, limit, *where, options=(completion, prompt, rubric), **equal)


def labelled(
    session: Session, *, names: Collection[str], annotators: Collection[str], job_id: int | None, after: int, limit: int
) -> tuple[list[tuple[LabelRow, CompletionRow, RubricRow]], int | None]:
    """Return the labels on ``limit`` completions after one, and the last of these if more follow.

    They come with their completion, prompt and rubric, by completion and rubric. If given, they are under the rubrics
    of these ``names``, by these ``annotators``, and of the completions of the job.
    """
    where: list[ColumnElement[bool]] = [LabelRow.completion_id > after]
    if names:
        where.append(LabelRow.rubric_id.in_(select(RubricRow.id).where(RubricRow.name.in_(names))))
    if annotators:
        where.append(LabelRow.annotator.in_(annotators))
    if job_id is not None:
        where.append(LabelRow.completion_id.in_(select(ItemRow.completion_id).where(ItemRow.job_id == job_id)))
    page = select(LabelRow.completion_id).where(*where).distinct().order_by(LabelRow.completion_id)
    ids = list(session.scalars(page.limit(limit + 1)))
    query = select(LabelRow, CompletionRow, RubricRow).join(CompletionRow, CompletionRow.id == LabelRow.completion_id)
    query = query.join(RubricRow, RubricRow.id == LabelRow.rubric_id)
    query = query.where(LabelRow.completion_id.in_(ids[:limit]), *where).options(joinedload(CompletionRow.prompt))
    rows = session.execute(query.order_by(LabelRow.completion_id, LabelRow.rubric_id, LabelRow.id))
    found = [(label, completion, rubric) for label, completion, rubric in rows]
    return found, ids[limit - 1] if len(ids) > limit else None


@dataclass(frozen=True, slots=True)
class RubricVersion:
    """A rubric version that was labelled or judged."""

    id: int
    name: str
    rubric: Rubric


_Item = Row[int, int, int, float | None]  # completion id, id, rubric id and reward of an item


def judged_labels(session: Session, judge_id: int | None, *, job_id: int | None = None) -> list[JudgedLabel]:
    """Return every label beside this judge's verdicts, if any, with ``job_id`` only on what that job scored.

    A label belongs to the question that the person was asked. If the judge was not asked under the label's rubric, the
    label is returned as one of the rubric under which the judge was last asked this question about the completion. If a
    person labelled a question under several rubrics, the newest label counts.
    """
    columns = (CompletionRow.prompt_id, CompletionRow.content["id"].as_string())
    query = select(LabelRow, *columns).join(CompletionRow, CompletionRow.id == LabelRow.completion_id)
    if job_id is not None:
        jobs.scoring(session, job_id)  # raises NotFoundError
        query = query.where(LabelRow.completion_id.in_(select(ItemRow.completion_id).where(ItemRow.job_id == job_id)))
    if not (rows := session.execute(query.order_by(LabelRow.id)).all()):
        return []
    labelled = select(LabelRow.completion_id)
    asked = select(ItemRow.rubric_id).where(ItemRow.judge_id == judge_id, ItemRow.completion_id.in_(labelled))
    known = select(RubricRow).where(or_(RubricRow.id.in_(select(LabelRow.rubric_id)), RubricRow.id.in_(asked)))
    versions = {row.id: RubricVersion(row.id, row.name, row.value) for row in session.scalars(known)}
    # Older items may have asked other questions. Only the item names the judge: verdicts are shared by all judges and
    # rubrics that ask the same question. The reward is the same item's, null too: an older one is of other verdicts.
    newest = jobs.newest_items(judge_id or 0, job_id).where(ItemRow.completion_id.in_(labelled))
    of_items = select(ItemRow.completion_id, ItemRow.id, ItemRow.rubric_id, ItemRow.reward)
    newest_first = of_items.where(ItemRow.id.in_(newest)).order_by(ItemRow.id.desc())
    judged: dict[int, list[_Item]] = defaultdict(list)
    for item in session.execute(newest_first):
        judged[item.completion_id].append(item)
    matches = {row.id: _match(row, judged[row.completion_id], versions) for row, *_ in rows}
    item_ids = {match[0].id for match in matches.values() if match}
    found = {
        id_: {one.criterion: one for one in each}
        for id_, each in completions.verdicts_of_items(session, item_ids).items()
    }
    outdated = superseded((row for row, *_ in rows), versions)
    labels = []
    for row, prompt_id, external_id in rows:
        match = matches[row.id]
        if row.id in outdated or (match is None and job_id is not None and judge_id is not None):
            continue
        version, key = (versions[match[0].rubric_id], match[1]) if match else (versions[row.rubric_id], row.criterion)
        labels.append(
            JudgedLabel(
                completion_id=row.completion_id,
                prompt_id=prompt_id,
                rubric_id=version.id,
                label=row.label.model_copy(update={"criterion": key}),
                criterion=version.rubric.by_key.get(key),
                verdicts=found.get(match[0].id, {}) if match else {},
                reward=match[0].reward if match else None,
                completion_external_id=external_id,
            )
        )
    return labels


def _match(row: LabelRow, items: Iterable[_Item], versions: Mapping[int, RubricVersion]) -> tuple[_Item, str] | None:
    """Return the item where the judge was asked what the label answers, and the key; the label's own version first.

    A score of the whole completion is the same in all versions of a name.
    """
    key, labelled = row.criterion, versions[row.rubric_id]
    criterion = labelled.rubric.by_key.get(key)
    for one in sorted(items, key=lambda item: item.rubric_id != row.rubric_id):
        version = versions[one.rubric_id]
        if criterion is not None:
            same = [own.key for own in version.rubric.criteria if own.question == criterion.question]
        else:
            same = [key] if version.name == labelled.name and key not in version.rubric.by_key else []
        if same:
            return one, key if key in same else same[0]
    return None


def superseded(rows: Iterable[LabelRow], versions: Mapping[int, RubricVersion]) -> set[int]:
    """Return the labels whose question the same person labelled later, under another rubric."""
    newest: dict[tuple[int, str, str], LabelRow] = {}
    several = []
    for row in rows:
        version = versions[row.rubric_id]
        criterion: Criterion | None = version.rubric.by_key.get(row.criterion)
        key = (row.completion_id, criterion.question if criterion else version.name, row.annotator)
        if (known := newest.setdefault(key, row)) is not row:
            newest[key] = max(known, row, key=lambda one: (one.created_at, one.id))
        several.append((key, row))
    return {row.id for key, row in several if row.rubric_id != newest[key].rubric_id}


FAILED, ABSTAINED = -1.0, -2.0
"""In place of the value of a verdict that has none."""
_IN_CHUNKS = {"yield_per": 20_000}

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
        query = jobs.newest_items(self.judge_id, self.job_id)
        return query if self.rubric_id is None else query.where(ItemRow.rubric_id == self.rubric_id)


def count_selected(session: Session, selection: Selection) -> int:
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
    columns = (ItemRow.id, ItemRow.completion_id, CompletionRow.prompt_id, ItemRow.rubric_id, ItemRow.reward)
    query = select(*columns, characters).join(CompletionRow, CompletionRow.id == ItemRow.completion_id)
    query = query.where(ItemRow.id.in_(selection.newest)).order_by(ItemRow.rubric_id, ItemRow.id)
    return session.connection().execute(query, execution_options=_IN_CHUNKS).partitions()


def read_values(session: Session, selection: Selection) -> Chunks:
    """Yield chunks of (item id, position of the criterion in the rubric, value), in any order.

    The value is FAILED or ABSTAINED where a verdict has none.
    """
    value = case(
        (VerdictRow.outcome == "scored", VerdictRow.value), (VerdictRow.outcome == "failed", FAILED), else_=ABSTAINED
    )
    query = with_verdicts(select(ItemRow.id, QuestionRow.position, value).select_from(ItemRow))
    query = query.where(ItemRow.id.in_(selection.newest))
    return session.connection().execute(query, execution_options=_IN_CHUNKS).partitions()


def judges_of(session: Session, rubric_id: int, job_id: int | None = None) -> list[JudgeRow]:
    """Return the judges that scored completions under this version, if the job used it, the most first."""
    query = select(JudgeRow).join(ItemRow, ItemRow.judge_id == JudgeRow.id)
    query = query.where(ItemRow.question_set.is_not(None), ItemRow.rubric_id == rubric_id)
    if job_id is not None:
        of_job = select(ItemRow.rubric_id).where(ItemRow.job_id == job_id).distinct()
        query = query.where(ItemRow.rubric_id.in_(of_job))
    count = func.count(ItemRow.completion_id.distinct())
    return list(session.scalars(query.group_by(JudgeRow.id).order_by(count.desc(), JudgeRow.id.desc())))


def overall_labels(session: Session, scored_by: Selection | int) -> list[tuple[int, str, float]]:
    """Return (completion id, person, overall score) of the completions of a selection, or of a job.

    Under any rubric; of several by one person, the newest.
    """
    scored = select(ItemRow.completion_id)
    if isinstance(scored_by, Selection):
        scored = scored.where(ItemRow.id.in_(scored_by.newest))
    else:
        scored = scored.where(ItemRow.job_id == scored_by)
    where = (LabelRow.criterion == OVERALL, LabelRow.value.is_not(None), LabelRow.completion_id.in_(scored))
    query = select(LabelRow.completion_id, LabelRow.annotator, LabelRow.value).where(*where)
    rows = session.execute(query.order_by(LabelRow.created_at, LabelRow.id))
    newest = {(completion_id, person): value for completion_id, person, value in rows}
    return [(id_, person, value) for (id_, person), value in newest.items() if value is not None]
