"""What a training run reads from the database before it starts: judges with what was measured of them, and prompts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rubricsvc.core.audit import Repeatability, StoredAudit
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import Passport
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import InvalidError, NotFoundError, RubricsvcError
from rubricsvc.services.rubrics import stored_records
from rubricsvc.store import judges, labels, prompts, rubrics, workers
from rubricsvc.store.session import Database

if TYPE_CHECKING:
    from rubricsvc.formats.record import Record
    from rubricsvc.stats.agreement import CriterionAgreement


@dataclass(frozen=True, slots=True)
class JudgeOnRecord:
    """A stored judge with its newest audit, its repeatability and its passport."""

    id: int
    judge: Judge
    audit: StoredAudit | None
    repeatability: Repeatability | None
    passport: Passport | None


class RunInputs:
    """The part of a database that a training run reads."""

    def __init__(self, db: Database) -> None:
        self.db = db

    def check_references(self, judge_names: Mapping[str, str], rubric_refs: Mapping[str, str]) -> None:
        """Check that judges and rubrics are stored, given by the fields that name them.

        Raises:
            NotFoundError: Names all that are not, each with its field.
            InvalidError: The same, where one of them is not missing but may not be used.
        """
        problems: list[tuple[str, RubricsvcError]] = []
        with self.db.read() as session:
            for names, get in ((judge_names, judges.get), (rubric_refs, rubrics.get)):
                for path, name in names.items():
                    try:
                        get(session, name)
                    except RubricsvcError as error:
                        problems.append((path, error))
        if problems:
            kind = NotFoundError if all(isinstance(error, NotFoundError) for _, error in problems) else InvalidError
            hints = dict.fromkeys(error.hint for _, error in problems)
            message = "\n".join(f"{path}: {error}" for path, error in problems)
            raise kind(message, hint="; ".join(filter(None, hints)), path=problems[0][0])

    def judge(self, judge: Judge | str) -> JudgeOnRecord:
        """Return a stored judge; one that is given with its fields is stored under its name.

        Raises:
            NotFoundError: There is no judge of this name.
            ConflictError: The name means another judge.
        """
        with self.db.write() if isinstance(judge, Judge) else self.db.read() as session:
            row = judges.add(session, judge) if isinstance(judge, Judge) else judges.get(session, judge)
            audit = judges.newest_audit(session, [row.id]).get(row.id)
            value = audit.value if audit else None
            return JudgeOnRecord(row.id, row.value, value, row.measured, row.passport_value)

    def agreement(self, judge: JudgeOnRecord, digests: Collection[str]) -> tuple[CriterionAgreement | None, str]:
        """Return its agreement with labels on prompts of these digests, else on all; and which labels these are."""
        from rubricsvc.stats.preflight import agreement

        with self.db.read() as session:
            rows = labels.judged_labels(session, judge.id)
            own = prompts.ids_of(session, digests) if rows else set[int]()
        found = agreement(judge.judge, [row for row in rows if row.prompt_id in own])
        if found is not None:
            return found, "on these prompts"
        return agreement(judge.judge, rows), "on all prompts"

    def records(self, refs: Sequence[str]) -> list[Record]:
        """Return the records of rubrics, each named as NAME or NAME@VERSION."""
        with self.db.read() as session:
            return list(stored_records(session, refs))

    def reject_drafts(self, used: Iterable[Rubric]) -> None:
        """Raise NotApprovedError if some of these rubrics are stored as drafts."""
        digests = {rubric.digest for rubric in used}
        with self.db.read() as session:
            rubrics.reject_drafts(session, [row.id for row in rubrics.only_drafts(session, digests)])

    def running_workers(self) -> int:
        """Return the number of workers that are running."""
        with self.db.read() as session:
            return workers.running(session)
