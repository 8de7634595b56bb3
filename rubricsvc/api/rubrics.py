"""``/v1/rubrics``: immutable versions of named rubrics."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from sqlalchemy.orm import Session

from rubricsvc.api.auth import Caller
from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.pagination import paginate
from rubricsvc.api.request import Db, RefInPath, Service, SettingsDep, ValidatorsDep
from rubricsvc.api.routes import IdempotencyKey
from rubricsvc.core.generation import Provenance
from rubricsvc.core.rubric_analysis import RubricAnalysis
from rubricsvc.errors import InvalidError
from rubricsvc.lint import lint, rules_of
from rubricsvc.queries import AnalysisQuery, Paging, RubricFilters
from rubricsvc.schemas import (
    LintReport,
    LintRequest,
    NewGeneration,
    NewReview,
    NewRubric,
    Page,
    RubricEvent,
    StoredJob,
    StoredRubric,
    StoredRubricTest,
)
from rubricsvc.services import analysing, generating, reviewing
from rubricsvc.services.editing import Edit, add_version
from rubricsvc.store import labels, prompts, rubrics
from rubricsvc.store.session import PUBLISHED

router = APIRouter(prefix="/rubrics", tags=["rubrics"], route_class=StrictRoute)

MAX_COMPLETIONS = 20_000
"""About 3 seconds of reading."""


@router.post("", status_code=201, responses=error_responses(404, 409))
def add(db: Db, settings: SettingsDep, caller: Caller, validators: ValidatorsDep, new: Json[NewRubric]) -> StoredRubric:
    """Store a rubric as the next version of its name. Identical content under a name is the same version.

    409 if that version belongs to another prompt; or if the `parent` has been edited already: then the rubric is kept
    as a draft, and the message says what both edits change.
    """
    validators.rubric(new.rubric)
    edit = Edit(caller, new.parent, force=new.force, draft=new.draft, policy=settings.require_approval)
    with db.write() as session:
        if new.prompt_id is not None:
            prompts.get(session, new.prompt_id)
        added = add_version(session, new.rubric, edit, name=new.name, prompt_id=new.prompt_id, origin="api")
    if added.conflict is not None:
        raise added.conflict
    return StoredRubric.of(added.row)


@router.post("/generate", status_code=201, responses={**error_responses(404, 409), 200: {"model": StoredJob}})
def generate(
    *,
    db: Db,
    service: Service,
    settings: SettingsDep,
    new: Json[NewGeneration],
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> StoredJob:
    """Submit a job that generates a rubric for each prompt; its items have the versions once they are done.

    Without an Idempotency-Key the same judge, prompts and settings return the same job. 201 for a new job, 200 for an
    existing one, 409 if the key was used for something else, if the job exists with another budget, or if the
    collection has another digest than `research` names. 404 if there is no such collection on this machine.
    """
    with db.write() as session:
        options = new.model_dump(include={"name", "budget"}) | {"collections_dir": settings.collections_dir}
        job = generating.submit(
            session, new.judge, new.prompts, new.generation, key=idempotency_key or new.key, **options
        )
        if PUBLISHED not in session.info:  # only a new job publishes
            response.status_code = 200
    return service.jobs.get(job.id)


@router.post("/lint", responses=error_responses())
def find_faults(validators: ValidatorsDep, new: Json[LintRequest]) -> LintReport:
    """Find faults of a rubric without a model: two questions in one criterion, near-duplicates, vague words and more.

    Nothing is stored. 422 if a rule is unknown, or the rubric is invalid.
    """
    validators.rubric(new.rubric)
    rules = rules_of(new.rules, new.ignore, new.severity)
    findings = lint(new.rubric, new.prompt, rules=rules, empty_value=validators.empty_value)
    return LintReport(findings=tuple(findings))


@router.get("", responses=error_responses())
def page(db: Db, query: Annotated[RubricFilters, Query()]) -> Page[StoredRubric]:
    """List rubric versions, oldest first."""
    return paginate(db, rubrics.page, StoredRubric.of, query)


@router.get("/{ref:path}/analysis", responses=error_responses(404, 409))
def analyse(db: Db, ref: RefInPath, query: Annotated[AnalysisQuery, Query()]) -> RubricAnalysis:
    """Analyse a version's criteria from stored verdicts and labels, and advise what to change.

    Of at most 20,000 completions, since it reads all of their verdicts.
    """
    with db.read() as session:
        scope = analysing.scope_of(session, ref, query.job_id, query.judge)
        if (count := labels.count_selected(session, scope.selection)) > MAX_COMPLETIONS:
            message = f"{count} completions; an analysis over HTTP is limited to {MAX_COMPLETIONS}"
            raise InvalidError(message, hint=f"run `rubricsvc rubrics analyse {ref} --json` on the service's machine")
        return analysing.analyse(session, ref, **query.model_dump())[0]


@router.post("/{ref:path}/review", responses=error_responses(404, 409))
def review(db: Db, caller: Caller, ref: RefInPath, new: Json[NewReview]) -> StoredRubric:
    """Submit, approve, reject or retire a version, or comment on it; by the name of the API key.

    A name means its only version that the action can start from. Doing the same again changes nothing. 409 if the
    version has a state that the action does not start from, or if it has examples and its newest test did not pass.
    """
    with db.write() as session:
        row = reviewing.review(session, ref, new.action, by=caller, comment=new.comment)
    return StoredRubric.of(row)


@router.get("/{ref:path}/provenance", responses=error_responses(404, 409))
def get_provenance(db: Db, ref: RefInPath) -> Provenance:
    """Get where a generated version comes from: model, template, sampling, sources, reply, and findings of the gate.

    404 if it was not generated here. A name without an approved version means its newest draft.
    """
    with db.read() as session:
        return rubrics.provenance(session, ref)


@router.get("/{ref:path}/tests", responses=error_responses(404, 409))
def page_tests(db: Db, ref: RefInPath, query: Annotated[Paging, Query()]) -> Page[StoredRubricTest]:
    """List the tests of a version by its own examples, oldest first, which `rubricsvc rubrics test` stored.

    A version with examples is approved only if the newest one that was measured passed. A name without an approved
    version means its newest draft.
    """

    def fetch(session: Session, **paging: int) -> list[StoredRubricTest]:
        row = rubrics.get(session, ref, allow_drafts=True)
        return [StoredRubricTest.of(one, rubric=row.ref) for one in rubrics.tests(session, row.id, **paging)]

    return paginate(db, fetch, lambda test: test, query)


@router.get("/{ref:path}/history", responses=error_responses(404, 409))
def page_history(db: Db, ref: RefInPath, query: Annotated[Paging, Query()]) -> Page[RubricEvent]:
    """List the steps of the review of a version, oldest first; of a name those of all its versions."""

    def fetch(session: Session, **paging: int) -> list[RubricEvent]:
        versions = reviewing.history_of(session, ref)
        rows = rubrics.events(session, list(versions), **paging)
        return [RubricEvent.of(row, rubric=versions[row.rubric_id].ref) for row in rows]

    return paginate(db, fetch, lambda event: event, query)


@router.get("/{ref:path}", responses=error_responses(404, 409))
def get(db: Db, ref: RefInPath) -> StoredRubric:
    """Get a version by id, name (newest approved version), name@version, or at least 8 digits of its digest.

    409 if a name has no approved version.
    """
    with db.read() as session:
        return StoredRubric.of(rubrics.get(session, ref))
