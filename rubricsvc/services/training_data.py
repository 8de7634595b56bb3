"""People's labels and judges' verdicts as data to train judges on, streamed in pages with a transaction each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from rubricsvc.formats import Record
from rubricsvc.store import items, jobs, judges, labels, rubrics, verdicts
from rubricsvc.store.base import batched
from rubricsvc.store.labels import RubricVersion, superseded

if TYPE_CHECKING:
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import LabelRow

PAGE = 200


@dataclass(frozen=True)
class JudgedCompletion:
    """A completion with one judge's verdicts under one rubric version."""

    prompt: Prompt
    completion: Completion
    rubric: Rubric
    verdicts: tuple[Verdict, ...]


class TrainingData:
    """The labels and verdicts of a database.

    Args:
        db: The database.
    """

    def __init__(self, db: Database) -> None:
        self._db = db

    def labels(
        self,
        *,
        rubric_refs: Collection[int | str] = (),
        annotators: Collection[str] = (),
        job_id: int | None = None,
        left_out: Counter[str] | None = None,
    ) -> Iterator[Record]:
        """Yield a record for each labelled completion and rubric version, by completion.

        A label counts for its question: with ``rubric_refs``, labels on other versions are yielded where these ask the
        same. If a person labelled a question under several versions, the newest label counts.

        Args:
            rubric_refs: Rubrics by id, name (the newest version), name@version or digest; by default all.
            annotators: Names of people; by default all.
            job_id: Only completions of this job.
            left_out: Counts the labels that are left out: ``superseded``, or of an ``other_question``.

        Raises:
            NotFoundError: No such rubric or job.
        """
        left_out = Counter() if left_out is None else left_out
        with self._db.read() as session:
            if job_id is not None:
                jobs.scoring(session, job_id)
            asked: dict[str, set[str]] = {}
            for ref in rubric_refs:
                row = rubrics.get(session, ref)
                asked.setdefault(row.name, set()).update(one.question for one in row.value.criteria)
            ids = labels.completion_ids(session, names=asked, annotators=annotators, job_id=job_id)
        for chunk in batched(ids, PAGE):
            with self._db.read() as session:
                rows = labels.of_completions(session, chunk, names=asked, annotators=annotators)
            versions = {one.id: one for _, _, one in rows}
            known = {id_: RubricVersion(id_, one.name, one.value) for id_, one in versions.items()}
            outdated = superseded((label for label, *_ in rows), known)
            left_out["superseded"] += len(outdated)
            current = [row for row in rows if row[0].id not in outdated]
            for (_, rubric_id), group in groupby(current, key=lambda row: (row[1].id, row[2].id)):
                version, given = known[rubric_id], list(group)
                kept = [label for label, *_ in given if not asked or _asks(version, label, asked[version.name])]
                left_out["other_question"] += len(given) - len(kept)
                if kept:
                    completion, people = given[0][1], tuple(label.label for label in kept)
                    yield Record(
                        completion.prompt.value, version.rubric, (completion.value,), people, name=version.name
                    )

    def judge(self, ref: int | str) -> Judge:
        """Return the judge with an id or a name.

        Raises:
            NotFoundError: There is none.
        """
        with self._db.read() as session:
            return judges.get(session, ref).value

    def verdicts(self, judge: int | str, *, job_id: int | None = None) -> Iterator[JudgedCompletion]:
        """Yield the judge's newest verdicts on each completion under each rubric version.

        Args:
            judge: The judge by id or name.
            job_id: Only what this job scored.

        Raises:
            NotFoundError: No such judge or job.
            InvalidError: The job was scored by another judge.
        """
        with self._db.read() as session:
            row = judges.get(session, judge)
            if job_id is not None and (job := jobs.scoring(session, job_id)).judge_id != row.id:
                message = f"job {job_id} was scored by the judge {job.judge.name!r}, not by {row.name!r}"
                raise InvalidError(message, hint=f"name the judge {job.judge.name!r}, or another job", path="job")
            ids = items.newest_ids(session, row.id, job_id)
        for chunk in batched(ids, PAGE):
            with self._db.read() as session:
                rows = items.by_ids(session, chunk)
                found = verdicts.for_items(session, chunk)
            values = {one.rubric_id: one.rubric.value for one in rows}
            for one in rows:
                texts = one.completion.prompt.value, one.completion.value
                yield JudgedCompletion(*texts, values[one.rubric_id], tuple(found.get(one.id, ())))


def _asks(version: RubricVersion, row: LabelRow, questions: Collection[str]) -> bool:
    """Return whether the label's question is one of these; a score of the whole completion always is."""
    criterion = version.rubric.by_key.get(row.criterion)
    return criterion is None or criterion.question in questions
