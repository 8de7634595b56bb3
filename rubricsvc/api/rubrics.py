"""``/v1/rubrics``: immutable versions of named rubrics."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.pagination import paginate
from rubricsvc.api.request import Db, RefInPath, ValidatorsDep
from rubricsvc.core.rubric_analysis import RubricAnalysis
from rubricsvc.errors import InvalidError
from rubricsvc.queries import AnalysisQuery, RubricFilters
from rubricsvc.schemas import NewRubric, Page, StoredRubric
from rubricsvc.services import analysing
from rubricsvc.store import prompts, rubrics, verdict_values

router = APIRouter(prefix="/rubrics", tags=["rubrics"], route_class=StrictRoute)

MAX_COMPLETIONS = 20_000
"""About 3 seconds of reading."""


@router.post("", status_code=201, responses=error_responses(404, 409))
def add(db: Db, validators: ValidatorsDep, new: Json[NewRubric]) -> StoredRubric:
    """Store a rubric as the next version of its name. Identical content under a name is the same version.

    409 if that version belongs to another prompt.
    """
    validators.rubric(new.rubric)
    with db.write() as session:
        if new.prompt_id is not None:
            prompts.get(session, new.prompt_id)
        row = rubrics.add(session, new.rubric, name=new.name, prompt_id=new.prompt_id, origin=new.origin)
        return StoredRubric.of(row)


@router.get("", responses=error_responses())
def page(db: Db, query: Annotated[RubricFilters, Query()]) -> Page[StoredRubric]:
    """List rubric versions, oldest first."""
    return paginate(db, rubrics.page, StoredRubric.of, query)


@router.get("/{ref:path}/analysis", responses=error_responses(404))
def analyse(db: Db, ref: RefInPath, query: Annotated[AnalysisQuery, Query()]) -> RubricAnalysis:
    """Analyse a version's criteria from stored verdicts and labels, and advise what to change.

    Of at most 20,000 completions, since it reads all of their verdicts.
    """
    with db.read() as session:
        scope = analysing.scope_of(session, ref, query.job_id, query.judge)
        if (count := verdict_values.count(session, scope.selection)) > MAX_COMPLETIONS:
            message = f"{count} completions; an analysis over HTTP is limited to {MAX_COMPLETIONS}"
            raise InvalidError(message, hint=f"run `rubricsvc rubrics analyse {ref} --json` on the service's machine")
        return analysing.analyse(session, ref, **query.model_dump())[0]


@router.get("/{ref:path}", responses=error_responses(404))
def get(db: Db, ref: RefInPath) -> StoredRubric:
    """Get a version by id, name (newest version), name@version, or at least 8 digits of its digest."""
    with db.read() as session:
        return StoredRubric.of(rubrics.get(session, ref))
