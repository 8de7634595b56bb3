"""``/v1/judges``. A name refers to one judge forever; only its endpoint may change."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy.orm import Session

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.pagination import paginate
from rubricsvc.api.request import Db, RefInPath, ValidatorsDep
from rubricsvc.core.audit import StoredAudit
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.passport import Passport
from rubricsvc.errors import ConflictError, InvalidError
from rubricsvc.queries import Paging
from rubricsvc.schemas import NewJudge, Page, StoredJudge
from rubricsvc.store import judges
from rubricsvc.store.tables import AuditRow, JudgeRow

router = APIRouter(prefix="/judges", tags=["judges"], route_class=StrictRoute)


@router.post("", status_code=201, responses=error_responses(409))
def add(db: Db, validators: ValidatorsDep, new: Json[NewJudge]) -> StoredJudge:
    """Store a judge. 409 if the name belongs to a different judge, or to one with another endpoint or adapter folder.

    The service never asks a model: `rubricsvc judges probe NAME` asks two test questions. API keys are assigned
    to addresses on the server only, so that a caller cannot send the server's keys elsewhere.
    """
    if any(one.endpoint.api_key_env is not None for one in (new.judge, *new.judge.leaf_judges)):
        hint = "add this judge on the server: rubricsvc judges add … --api-key-env NAME"
        raise InvalidError("api_key_env cannot be set over HTTP", hint=hint, path="judge.endpoint.api_key_env")
    validators.judge(new.judge)
    with db.write() as session:
        row = judges.find(session, new.judge.name)
        if row is not None and _places(row.value) != _places(new.judge):
            commands = "`rubricsvc judges update NAME --url …` or `rubricsvc judges add NAME --adapter …`"
            hint = f"change it on the server with {commands}, or choose another name"
            raise ConflictError(f"judge {new.judge.name!r} has another endpoint or adapter folder", hint=hint)
        return _of(judges.add(session, new.judge))


def _of(row: JudgeRow) -> StoredJudge:
    return StoredJudge.of(row, judge=row.valid)


def _places(judge: Judge) -> list[tuple[Endpoint, str | None]]:
    """Return the endpoint and the adapter's folder of a judge and its members, which are no part of its digest."""
    return [(one.endpoint, one.adapter) for one in (judge, *judge.leaf_judges)]


@router.get("", responses=error_responses())
def page(db: Db, query: Annotated[Paging, Query()]) -> Page[StoredJudge]:
    """List judges, oldest first."""
    return paginate(db, judges.page, _of, query)


@router.get("/{ref:path}/audits", responses=error_responses(404))
def page_audits(db: Db, ref: RefInPath, query: Annotated[Paging, Query()]) -> Page[StoredAudit]:
    """List the audits of a judge, oldest first. The last one counts."""

    def fetch(session: Session, **paging: int) -> list[AuditRow]:
        return judges.audits(session, judges.get(session, ref).id, **paging)

    return paginate(db, fetch, lambda row: row.value, query)


@router.get("/{ref:path}/passport", responses=error_responses(404))
def get_passport(db: Db, ref: RefInPath) -> Passport:
    """Get the passport of a trained judge: its data with licenses, its figures, what it must not be used for."""
    with db.read() as session:
        return judges.passport(session, ref)


@router.get("/{ref:path}", responses=error_responses(404))
def get(db: Db, ref: RefInPath) -> StoredJudge:
    """Get a judge by id or name."""
    with db.read() as session:
        return _of(judges.get(session, ref))
