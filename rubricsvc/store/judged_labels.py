"""Labels beside a judge's newest verdicts on the same questions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from rubricsvc.core.label import JudgedLabel
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.store import items, verdicts
from rubricsvc.store.tables import CompletionRow, ItemRow, LabelRow, RubricRow


@dataclass(frozen=True, slots=True)
class RubricVersion:
    """A rubric version that was labelled or judged."""

    id: int
    name: str
    rubric: Rubric

    def key_of(self, labelled: RubricVersion, key: str) -> str | None:
        """Return the key here of the criterion that asks what ``key`` asks in another version; None if none does.

        A score of the whole completion is the same in all versions of a name.
        """
        criterion = labelled.rubric.by_key.get(key)
        if criterion is None:
            return key if self.name == labelled.name and key not in self.rubric.by_key else None
        same = [own.key for own in self.rubric.criteria if own.question == criterion.question]
        return key if key in same else next(iter(same), None)


@dataclass(frozen=True, slots=True)
class _Judged:
    """The judge's newest item on a completion under one version."""

    item_id: int
    version: RubricVersion
    reward: float | None


def judged_labels(session: Session, judge_id: int, *, job_id: int | None = None) -> list[JudgedLabel]:
    """Return every label beside this judge's verdicts, with ``job_id`` only on what that job scored.

    A label belongs to the question that the person was asked. If the judge was not asked under the label's rubric, the
    label is returned as one of the rubric under which the judge was last asked this question about the completion. If a
    person labelled a question under several rubrics, the newest label counts.
    """
    columns = (CompletionRow.prompt_id, CompletionRow.content["id"].as_string())
    query = select(LabelRow, *columns).join(CompletionRow, CompletionRow.id == LabelRow.completion_id)
    if job_id is not None:
        query = query.where(LabelRow.completion_id.in_(select(ItemRow.completion_id).where(ItemRow.job_id == job_id)))
    rows = session.execute(query.order_by(LabelRow.id)).all()
    versions = _versions(session, judge_id)
    judged = _newest_items(session, judge_id, job_id, versions)
    matches = {row.id: _match(row, versions[row.rubric_id], judged[row.completion_id]) for row, *_ in rows}
    item_ids = {match[0].item_id for match in matches.values() if match}
    found = {id_: {one.criterion: one for one in each} for id_, each in verdicts.for_items(session, item_ids).items()}
    outdated = superseded((row for row, *_ in rows), versions)
    labels = []
    for row, prompt_id, external_id in rows:
        match = matches[row.id]
        if row.id in outdated or (match is None and job_id is not None):
            continue
        version, key = (match[0].version, match[1]) if match else (versions[row.rubric_id], row.criterion)
        labels.append(
            JudgedLabel(
                completion_id=row.completion_id,
                prompt_id=prompt_id,
                rubric_id=version.id,
                label=row.label.model_copy(update={"criterion": key}),
                criterion=version.rubric.by_key.get(key),
                verdicts=found.get(match[0].item_id, {}) if match else {},
                reward=match[0].reward if match else None,
                completion_external_id=external_id,
            )
        )
    return labels


def _versions(session: Session, judge_id: int) -> dict[int, RubricVersion]:
    """Return the versions that were labelled, and those that the judge was asked under, by id."""
    labelled = select(LabelRow.rubric_id)
    judged = select(ItemRow.rubric_id).where(
        ItemRow.judge_id == judge_id, ItemRow.completion_id.in_(select(LabelRow.completion_id))
    )
    query = select(RubricRow).where(or_(RubricRow.id.in_(labelled), RubricRow.id.in_(judged)))
    return {row.id: RubricVersion(row.id, row.name, row.value) for row in session.scalars(query)}


def _newest_items(
    session: Session, judge_id: int, job_id: int | None, versions: Mapping[int, RubricVersion]
) -> dict[int, list[_Judged]]:
    """Return the judge's newest item on each labelled completion under each version, by completion, newest first.

    Older items may have asked other questions. Only the item names the judge: verdicts are shared by all judges and
    rubrics that ask the same question. The reward is the same item's, null too: an older one was computed from other
    verdicts.
    """
    newest = items.newest(judge_id, job_id).where(ItemRow.completion_id.in_(select(LabelRow.completion_id)))
    query = select(ItemRow.completion_id, ItemRow.id, ItemRow.rubric_id, ItemRow.reward).where(ItemRow.id.in_(newest))
    judged: dict[int, list[_Judged]] = defaultdict(list)
    for completion_id, item_id, rubric_id, reward in session.execute(query.order_by(ItemRow.id.desc())):
        judged[completion_id].append(_Judged(item_id, versions[rubric_id], reward))
    return judged


def _match(row: LabelRow, labelled: RubricVersion, judged: Iterable[_Judged]) -> tuple[_Judged, str] | None:
    """Return where the judge was asked what the label answers, and the key there; the label's own version first."""
    for one in sorted(judged, key=lambda each: each.version.id != row.rubric_id):
        if (key := one.version.key_of(labelled, row.criterion)) is not None:
            return one, key
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
