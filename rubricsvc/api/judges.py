"""``/v1/judges``: who judges. A name stands for one way of judging for good; only how it is reached may change."""

from __future__ import annotations

from fastapi import APIRouter

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import declared
from rubricsvc.api.pagination import After, Limit, paged
from rubricsvc.api.request import Db, Examined, RefInPath
from rubricsvc.core.audit import KeptAudit
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.errors import ConflictError, InvalidError
from rubricsvc.schemas import NewJudge, Page, StoredJudge
from rubricsvc.store import audits, judges
from rubricsvc.store.tables import JudgeRow

router = APIRouter(prefix="/judges", tags=["judges"], route_class=StrictRoute)


def show(row: JudgeRow) -> StoredJudge:
    return StoredJudge(id=row.id, created_at=row.created_at, digest=row.digest, judge=row.value)


@router.post("", status_code=201, responses=declared(409))
def add(db: Db, examine: Examined, new: Json[NewJudge]) -> StoredJudge:
    """Keep a judge. 409 where the name stands for another one, or for one that is reached otherwise.

    Whoever may call this must not learn the server's secrets: which key goes to which address is said at the server.
    """
    if any(one.endpoint.api_key_env is not None for one in (new.judge, *new.judge.leaf_judges)):
        hint = "add this judge at the server: rubricsvc judges add … --api-key-env NAME"
        raise InvalidError("keys are not handed out over HTTP", hint=hint, path="judge.endpoint.api_key_env")
    examine.judge(new.judge)
    with db.write() as session:
        row = judges.find(session, new.judge.name)
        if row is not None and _reached(row.value) != _reached(new.judge):
            hint = "change where it is at the server, with rubricsvc judges add; or give the new judge its own name"
            raise ConflictError(f"judge {new.judge.name!r} is reached otherwise", hint=hint)
        return show(judges.add(session, new.judge))


def _reached(judge: Judge) -> list[Endpoint]:
    """How a judge and its members are reached."""
    return [judge.endpoint, *(leaf.endpoint for leaf in judge.leaf_judges)]


@router.get("", responses=declared())
def page(db: Db, after: After = 0, limit: Limit = 50) -> Page[StoredJudge]:
    """All judges, oldest first."""
    with db.read() as session:
        return paged(lambda n: judges.page(session, after=after, limit=n), show, limit)


@router.get("/{ref:path}/audits", responses=declared(404))
def page_audits(db: Db, ref: RefInPath, after: After = 0, limit: Limit = 50) -> Page[KeptAudit]:
    """The audits of a judge, oldest first: the last one counts. `rubricsvc judges audit` makes them."""
    with db.read() as session:
        judge_id = judges.get(session, ref).id
        return paged(lambda n: audits.page(session, judge_id, after=after, limit=n), lambda row: row.value, limit)


@router.get("/{ref:path}", responses=declared(404))
def get(db: Db, ref: RefInPath) -> StoredJudge:
    """One judge, by name or id."""
    with db.read() as session:
        return show(judges.get(session, ref))
