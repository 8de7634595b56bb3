"""Judges. A name always means the same judge, so that the origin of a score stays known."""

from collections.abc import Collection
from datetime import datetime
from difflib import get_close_matches

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from rubricsvc.core.audit import Audit
from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import Passport
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError
from rubricsvc.store.session import find as find_row
from rubricsvc.store.session import get_or_add, missing
from rubricsvc.store.tables import AuditRow, JudgeRow


def add(session: Session, judge: Judge) -> JudgeRow:
    """Store ``judge``. Under a known name only its endpoint may change."""
    if not judge.name.strip() or judge.name.isdecimal():
        raise InvalidError(f"{judge.name!r} cannot name a judge", hint="a bare number is an id; add a letter")
    if unnamed := [leaf.name for leaf in judge.leaf_judges if leaf.adapter and not leaf.weights_sha256]:
        hint = "`rubricsvc judges add` computes it; see docs/judges.md"
        path = "judge.weights_sha256"
        raise InvalidError(f"judge {unnamed[0]!r} has an adapter without weights_sha256", hint=hint, path=path)
    content = judge.model_dump(mode="json")
    row, _ = get_or_add(session, JudgeRow, {"name": judge.name}, digest=judge.digest, content=content)
    stored = row.valid
    if (stored.digest if stored else row.digest) != judge.digest:  # an invalid address is no part of it
        message = f"judge {judge.name!r} exists and is another one ({row.digest[:8]}, not {judge.digest[:8]})"
        hint = "give the new judge another name, for example with a version in it"
        raise ConflictError(message, hint=hint)
    if (row.content, row.digest) != (content, judge.digest):
        row.content, row.digest = content, judge.digest
        session.flush()
    return row


def set_passport(session: Session, judge_id: int, passport: Passport) -> None:
    """Store the passport of a trained judge in place of an older one.

    Its repeatability and its audit become those of the judge where it has none.
    """
    row = session.get_one(JudgeRow, judge_id)
    passport.check_judge(row.value)
    row.passport = passport.model_dump(mode="json")
    if row.repeatability is None and passport.repeatability:
        row.repeatability = passport.repeatability.model_dump(mode="json")
    if passport.audit and not newest_audit(session, [judge_id]):
        add_audit(session, judge_id, passport.audit, created_at=passport.created_at)
    session.flush()
    session.expire(row, ["has_passport"])


def find(session: Session, name: str) -> JudgeRow | None:
    """Return the judge of this name, or None."""
    return session.scalars(select(JudgeRow).where(JudgeRow.name == name)).first()


def of_model(session: Session, model: str) -> JudgeRow:
    """Return the judge of this name, or else the newest one that asks this model about single completions."""
    content = JudgeRow.content
    asks = (content["model"].as_string() == model) & content["mode"].as_string().in_(("readout", "written"))
    row = find(session, model) or session.scalars(select(JudgeRow).where(asks).order_by(JudgeRow.id.desc())).first()
    if row is None:
        hint = f"add one: rubricsvc judges add NAME --url … --model {model} --mode written; or name a judge {model!r}"
        raise NotFoundError(f"no judge asks the model {model!r}", hint=hint)
    return row


def get(session: Session, ref: int | str) -> JudgeRow:
    """Return the judge with an id (a number), or with a name or id (a text)."""
    row = find(session, ref) if isinstance(ref, str) else None
    row = row or find_row(session, JudgeRow, ref)
    if row is None:
        names = list(session.scalars(select(JudgeRow.name)))
        close = get_close_matches(str(ref)[:MAX_NAME_LENGTH], [*names, "embedded"], n=1)
        hint = f"did you mean {close[0]!r}?" if close else ""
        if close and close[0] not in names:
            hint = "add it: `rubricsvc judges add embedded --embedded`"
        raise missing("judge", ref, hint)
    return row


def add_audit(session: Session, judge_id: int, audit: Audit, *, created_at: datetime | None = None) -> AuditRow:
    """Store an audit of a judge, of now by default; the newest audit again, as of a request sent twice, is it."""
    content, newest = audit.model_dump(mode="json"), newest_audit(session, [judge_id]).get(judge_id)
    if newest is not None and newest.content == content:
        return newest
    row = AuditRow(judge_id=judge_id, digest=audit.digest, passed=audit.passed, content=content)
    if created_at is not None:
        row.created_at = created_at
    session.add(row)
    session.flush()
    return row


def newest_audit(session: Session, judge_ids: Collection[int]) -> dict[int, AuditRow]:
    """Return the newest audit of each judge that has one, by the judge's id."""
    last = select(func.max(AuditRow.id)).where(AuditRow.judge_id.in_(judge_ids)).group_by(AuditRow.judge_id)
    return {row.judge_id: row for row in session.scalars(select(AuditRow).where(AuditRow.id.in_(last)))}
