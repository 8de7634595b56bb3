"""What a training run reads from the database before it starts: judges with what was measured of them, and prompts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rubricsvc.core.audit import Repeatability, StoredAudit
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import Passport
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import InvalidError, NotFoundError, RubricsvcError
from rubricsvc.store import judges, labels, prompts, rubrics
from rubricsvc.store.session import Database

if TYPE_CHECKING:
    from rubricsvc.stats.agreement import CriterionAgreement


@dataclass(frozen=True, slots=True)
class JudgeOnRecord:
    """A stored judge with its newest audit, its repeatability and its passport."""

    id: int
    judge: Judge
    audit: StoredAudit | None
    repeatability: Repeatability | None
    passport: Passport | None


def check_references(db: Database, judge_names: Mapping[str, str], rubric_refs: Mapping[str, str]) -> None:
    """Check that judges and rubrics are stored, given by the fields that name them.

    Raises:
        NotFoundError: Names all that are not, each with its field.
        InvalidError: The same, where one of them is not missing but may not be used.
    """
    problems: list[tuple[str, RubricsvcError]] = []
    with db.read() as session:
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


def judge_on_record(db: Database, judge: Judge | str) -> JudgeOnRecord:
    """Return a stored judge; one that is given with its fields is stored under its name.

    Raises:
        NotFoundError: There is no judge of this name.
        ConflictError: The name means another judge.
    """
    with db.write() if isinstance(judge, Judge) else db.read() as session:
        row = judges.add(session, judge) if isinstance(judge, Judge) else judges.get(session, judge)
        audit = judges.newest_audit(session, [row.id]).get(row.id)
        value = audit.value if audit else None
        return JudgeOnRecord(row.id, row.value, value, row.measured, row.passport_value)


def agreement_on_record(
    db: Database, judge: JudgeOnRecord, digests: Collection[str]
) -> tuple[CriterionAgreement | None, str]:
    """Return its agreement with labels on prompts of these digests, else on all; and which labels these are."""
    from rubricsvc.stats.preflight import agreement

    with db.read() as session:
        rows = labels.judged_labels(session, judge.id)
        own = prompts.ids_of(session, digests) if rows else set[int]()
    found = agreement(judge.judge, [row for row in rows if row.prompt_id in own])
    if found is not None:
        return found, "on these prompts"
    return agreement(judge.judge, rows), "on all prompts"


def reject_drafts(db: Database, used: Iterable[Rubric]) -> None:
    """Raise a NotApprovedError if some of these rubrics are stored as drafts."""
    digests = {rubric.digest for rubric in used}
    with db.read() as session:
        rubrics.reject_drafts(session, [row.id for row in rubrics.only_drafts(session, digests)])
