"""Judges. A name always means the same judge, so that the origin of a score stays known."""

from __future__ import annotations

from difflib import get_close_matches

from sqlalchemy import select
from sqlalchemy.orm import Session

from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import Passport
from rubricsvc.core.repeatability import Repeatability
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError
from rubricsvc.store import audits, ids
from rubricsvc.store.tables import JudgeRow
from rubricsvc.store.upsert import get_or_add

CHECKS = Judge(name="checks", engine="none", model="none", mode="written")


def add(session: Session, judge: Judge) -> JudgeRow:
    """Store ``judge``. Under a known name only its endpoint may change.

    Raises:
        ConflictError: The name means another judge.
        InvalidError: the name is blank, or a bare number, which would be taken for an id; or the judge or a member has
            an adapter without the digest of its weights.
    """
    check_name(judge.name)
    if unnamed := [leaf.name for leaf in judge.leaf_judges if leaf.adapter and not leaf.weights_sha256]:
        hint = "`rubricsvc judges add` computes it; see docs/judges.md"
        path = "judge.weights_sha256"
        raise InvalidError(f"judge {unnamed[0]!r} has an adapter without weights_sha256", hint=hint, path=path)
    content = judge.model_dump(mode="json")
    row, _ = get_or_add(session, JudgeRow, {"name": judge.name}, digest=judge.digest, content=content)
    stored = row.valid
    if (stored.digest if stored else row.digest) != judge.digest:  # an invalid address is no part of it
        raise ConflictError(
            f"judge {judge.name!r} exists and is another one ({row.digest[:8]}, not {judge.digest[:8]})",
            hint="give the new judge another name, for example with a version in it",
        )
    if (row.content, row.digest) != (content, judge.digest):
        row.content, row.digest = content, judge.digest
        session.flush()
    return row


def check_name(name: str) -> None:
    """Raise an `InvalidError` if no judge can have this name: a blank one, or a bare number, which is an id."""
    ids.name_of("a judge's name", name)
    if name.isdecimal():
        raise InvalidError(f"{name!r} cannot name a judge", hint="a bare number is an id; add a letter")


def set_repeatability(session: Session, judge_id: int, repeatability: Repeatability) -> None:
    """Store a measurement of the judge's repeatability in place of an older one."""
    row = session.get_one(JudgeRow, judge_id)
    row.repeatability = repeatability.model_dump(mode="json")
    session.flush()


def set_passport(session: Session, judge_id: int, passport: Passport) -> None:
    """Store the passport of a trained judge in place of an older one.

    Its repeatability and its audit become those of the judge where it has none.

    Raises:
        InvalidError: it is the passport of another judge.
    """
    row = session.get_one(JudgeRow, judge_id)
    passport.check_judge(row.value)
    row.passport = passport.model_dump(mode="json")
    if row.repeatability is None and passport.repeatability:
        set_repeatability(session, judge_id, passport.repeatability)
    if passport.audit and not audits.newest(session, [judge_id]):
        audits.add(session, judge_id, passport.audit, created_at=passport.created_at)
    session.flush()
    session.expire(row, ["has_passport"])


def passport(session: Session, ref: int | str) -> Passport:
    """Return the passport of a judge.

    Raises:
        NotFoundError: there is no such judge, or it has no passport.
    """
    row = get(session, ref)
    value = row.passport_value
    if value is None:
        hint = "store one with `rubricsvc judges add --file judge.yaml --passport passport.json`"
        raise NotFoundError(f"judge {row.name!r} has no passport", hint=hint)
    return value


def find(session: Session, name: str) -> JudgeRow | None:
    """Return the judge of this name, or None."""
    return session.scalars(select(JudgeRow).where(JudgeRow.name == name)).first()


def of_model(session: Session, model: str) -> JudgeRow:
    """Return the judge of this name, or else the newest one that asks this model about single completions.

    Raises:
        NotFoundError: there is none.
    """
    content = JudgeRow.content
    asks = (content["model"].as_string() == model) & content["mode"].as_string().in_(("readout", "written"))
    row = find(session, model) or session.scalars(select(JudgeRow).where(asks).order_by(JudgeRow.id.desc())).first()
    if row is None:
        hint = f"add one: rubricsvc judges add NAME --url … --model {model} --mode written; or name a judge {model!r}"
        raise NotFoundError(f"no judge asks the model {model!r}", hint=hint)
    return row


def of_checks(session: Session) -> JudgeRow:
    """Return the judge without a model, which scores rubrics of checks alone. It is added at first use."""
    return find(session, CHECKS.name) or add(session, CHECKS)


def get(session: Session, ref: int | str) -> JudgeRow:
    """Return the judge with an id (a number), or with a name or id (a text).

    Raises:
        NotFoundError: there is none.
    """
    row = find(session, ref) if isinstance(ref, str) else None
    row = row or ids.find(session, JudgeRow, ref)
    if row is None:
        raise ids.missing("judge", ref, _similar(session, str(ref)))
    return row


def _similar(session: Session, ref: str) -> str:
    """Return a hint at the judge with the closest name, or at the embedded one."""
    names = list(session.scalars(select(JudgeRow.name)))
    close = get_close_matches(ref[:MAX_NAME_LENGTH], [*names, "embedded"], n=1)
    if not close:
        return ""
    return f"did you mean {close[0]!r}?" if close[0] in names else "add it: `rubricsvc judges add embedded --embedded`"


def page(session: Session, *, after: int = 0, limit: int = 50) -> list[JudgeRow]:
    """Return up to ``limit`` judges with ids above ``after``, ascending."""
    return ids.page_of(session, JudgeRow, after, limit)
