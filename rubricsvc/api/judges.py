"""``/v1/judges``. A name refers to one judge forever; only its endpoint may change."""

from __future__ import annotations

from fastapi import APIRouter

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.pagination import After, Limit, paginate
from rubricsvc.api.request import Db, RefInPath, ValidatorsDep
from rubricsvc.core.audit import StoredAudit
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.errors import ConflictError, InvalidError
from rubricsvc.schemas import NewJudge, Page, StoredJudge
from rubricsvc.store import audits, judges
from rubricsvc.store.tables import JudgeRow

router = APIRouter(prefix="/judges", tags=["judges"], route_class=StrictRoute)


def to_schema(row: JudgeRow) -> StoredJudge:
    """Return the wire type of a row."""
    return StoredJudge.of(row, judge=row.value, repeatability=row.measured)


@router.post("", status_code=201, responses=error_responses(409))
def add(db: Db, validators: ValidatorsDep, new: Json[NewJudge]) -> StoredJudge:
    """Store a judge. 409 if the name belongs to a different judge, or to one with another endpoint.

    API keys are assigned to addresses on the server only, so that a caller cannot send the server's keys elsewhere.
    """
    if any(one.endpoint.api_key_env is not None for one in (new.judge, *new.judge.leaf_judges)):
        hint = "add this judge on the server: rubricsvc judges add … --api-key-env NAME"
        raise InvalidError("api_key_env cannot be set over HTTP", hint=hint, path="judge.endpoint.api_key_env")
    validators.judge(new.judge)
    with db.write() as session:
        row = judges.find(session, new.judge.name)
        if row is not None and _endpoints(row.value) != _endpoints(new.judge):
            hint = (
                "change the endpoint on the server with `rubricsvc judges update NAME --url …`, or choose another name"
            )
            raise ConflictError(f"judge {new.judge.name!r} has another endpoint", hint=hint)
        return to_schema(judges.add(session, new.judge))


def _endpoints(judge: Judge) -> list[Endpoint]:
    """Return the endpoints of a judge and its members."""
    return [judge.endpoint, *(leaf.endpoint for leaf in judge.leaf_judges)]


@router.get("", responses=error_responses())
def page(db: Db, after: After = 0, limit: Limit = 50) -> Page[StoredJudge]:
    """List judges, oldest first."""
    with db.read() as session:
        return paginate(lambda n: judges.page(session, after=after, limit=n), to_schema, limit)


@router.get("/{ref:path}/audits", responses=error_responses(404))
def page_audits(db: Db, ref: RefInPath, after: After = 0, limit: Limit = 50) -> Page[StoredAudit]:
    """List the audits of a judge, oldest first. The last one counts."""
    with db.read() as session:
        judge_id = judges.get(session, ref).id
        return paginate(lambda n: audits.page(session, judge_id, after=after, limit=n), lambda row: row.value, limit)


@router.get("/{ref:path}", responses=error_responses(404))
def get(db: Db, ref: RefInPath) -> StoredJudge:
    """Get a judge by id or name."""
    with db.read() as session:
        return to_schema(judges.get(session, ref))
