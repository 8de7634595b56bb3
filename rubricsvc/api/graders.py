"""``/v1/graders``: run and validate OpenAI graders, with the requests and responses of OpenAI's API.

The same endpoints exist under ``/v1/fine_tuning/alpha/graders``, the path of OpenAI's client. A run is a job with one
completion: the grader is stored as a rubric and the item as a prompt. All of it is content-addressed, so that the same
run is the same job, and a repeated request retries what failed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import Field, JsonValue
from sqlalchemy.orm import Session

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.request import Db, Validators, ValidatorsDep
from rubricsvc.core.prompt import Completion
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import UnavailableError
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.openai_grader import parse, parse_prompt
from rubricsvc.graders.model import Grader, rubric_of
from rubricsvc.graders.results import GraderRun, run_of
from rubricsvc.schemas import Wire
from rubricsvc.settings import Settings
from rubricsvc.store import completions, jobs, judges, leases, prompts, rubrics, verdicts
from rubricsvc.store.session import Database
from rubricsvc.store.tables import COMPLETED, JudgeRow

NO_WORKER_SECONDS = 30.0
"""Seconds that a run waits while no worker works for its judges."""

router = APIRouter(tags=["graders"], route_class=StrictRoute)
_ALIAS = "/fine_tuning/alpha/graders"


class NewRun(Wire):
    """A grader, the sample that it grades, and the item that its templates refer to."""

    grader: dict[str, JsonValue]
    model_sample: str
    item: dict[str, JsonValue] | None = None
    reference_answer: JsonValue = Field(None, description="Sent by older clients: the item's field of this name.")


class GraderBody(Wire):
    """A grader to validate; the response is the same."""

    grader: dict[str, JsonValue]


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


@router.post("/graders/validate", responses=error_responses())
@router.post(f"{_ALIAS}/validate", include_in_schema=False)
def validate(validators: ValidatorsDep, new: Json[GraderBody]) -> GraderBody:
    """Validate a grader. 422 with the path of the error."""
    validators.rubric(rubric_of(parse(new.grader)))
    return new


@router.post("/graders/run", responses=error_responses(404))
@router.post(f"{_ALIAS}/run", include_in_schema=False)
async def run(
    db: Db, validators: ValidatorsDep, settings: Annotated[Settings, Depends(_settings)], new: Json[NewRun]
) -> GraderRun:
    """Run a grader on one sample and wait for the reward.

    A grader's `model` is the name of a judge, or else the model of the newest judge that has it. If the grader gives no
    number, `reward` is null and the flags give the reason. 404: unknown judge. 503: no worker in time; repeat the same
    request to continue.
    """
    began = time.monotonic()
    grader_run = await run_in_threadpool(_submit, db, validators, new)
    await _wait(db, grader_run, began, settings.grader_seconds)
    judge_verdicts, reason = await run_in_threadpool(_read, db, grader_run)
    seconds = time.monotonic() - began
    return run_of(
        grader_run.grader,
        grader_run.rubric,
        judge_verdicts,
        models=grader_run.models,
        seconds=seconds,
        unanswered=reason,
    )


@dataclass
class _GraderRun:
    """A run in progress. ``models``: criterion key to model name."""

    grader: Grader
    rubric: Rubric
    models: dict[str, str] = field(default_factory=dict)
    job_ids: list[int] = field(default_factory=list)
    judge_ids: list[int] = field(default_factory=list)


def _submit(db: Database, validators: Validators, new: NewRun) -> _GraderRun:
    """Store grader, item and sample, and submit one job per judge."""
    grader = parse(new.grader)
    grader_run = _GraderRun(grader, rubric_of(grader))
    validators.rubric(grader_run.rubric)
    legacy = {"reference_answer": new.reference_answer} if new.reference_answer is not None else {}
    prompt = parse_prompt({**legacy, **(new.item or {})})
    with db.write() as session:
        prompt_id = prompts.add(session, prompt).id
        completion_id = completions.add_many(session, [(prompt_id, Completion(text=new.model_sample))])[0]
        for judge, rubric in _split_by_judge(session, grader_run.rubric):
            name = rubric_name(f"grader {grader.label}")
            rubric_id = rubrics.add(session, rubric, name=name, origin="grader").id
            job = jobs.submit(session, judge_id=judge.id, items=[(completion_id, rubric_id)], name=name)
            if job.finished_at is not None and job.status != COMPLETED:
                jobs.retry(session, job.id)  # scored verdicts are kept
            grader_run.job_ids.append(job.id)
            grader_run.judge_ids.append(judge.id)
            asked = [criterion.key for criterion in rubric.criteria if criterion.custom_prompt]
            grader_run.models |= dict.fromkeys(asked, judge.value.model or judge.name)
    return grader_run


def _split_by_judge(session: Session, rubric: Rubric) -> Iterator[tuple[JudgeRow, Rubric]]:
    """Yield each judge with its part of the rubric: one per model, the checks with the first of them."""
    rows: dict[int, JudgeRow] = {}
    asked: dict[int, list[str]] = {}
    for criterion in rubric.criteria:
        if criterion.custom_prompt is not None:
            row = judges.of_model(session, criterion.custom_prompt.model or "")
            rows[row.id] = row
            asked.setdefault(row.id, []).append(criterion.key)
    if not rows:
        yield judges.of_checks(session), rubric
        return
    checked = [criterion.key for criterion in rubric.criteria if criterion.custom_prompt is None]
    for number, (judge_id, keys) in enumerate(asked.items()):
        mine = {*keys, *(checked if number == 0 else ())}
        part = tuple(criterion for criterion in rubric.criteria if criterion.key in mine)
        yield rows[judge_id], rubric if len(rows) == 1 else Rubric(criteria=part, formula="mean")


async def _wait(db: Database, grader_run: _GraderRun, began: float, longest: float) -> None:
    """Wait until the jobs are finished, without holding a connection.

    Raises:
        UnavailableError: no worker started, or ``longest`` seconds have passed.
    """
    pause, attended = 0.02, began
    while (state := await run_in_threadpool(_state, db, grader_run)) != "finished":
        now = time.monotonic()
        waited, attended = now - began, now if state == "attended" else attended
        if now - attended > min(NO_WORKER_SECONDS, longest):
            hint = "start a worker with `rubricsvc worker`, then repeat the request: it continues"
            raise UnavailableError(f"no worker started this run within {waited:.0f} s", hint=hint)
        if waited > longest:
            hint = "repeat the request: it continues; RUBRICSVC_GRADER_SECONDS sets the limit"
            raise UnavailableError(f"the run is not finished after {waited:.0f} s", hint=hint)
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.5)


def _state(db: Database, grader_run: _GraderRun) -> Literal["finished", "attended", "unattended"]:
    """Return whether the jobs are finished, or else whether a worker works for their judges."""
    with db.read() as session:
        progress = [jobs.progress(session, job_id) for job_id in grader_run.job_ids]
        if not any(one.pending + one.leased for one in progress):
            return "finished"
        return "attended" if leases.attended(session, grader_run.judge_ids) else "unattended"


def _read(db: Database, grader_run: _GraderRun) -> tuple[list[Verdict], str]:
    """Return the verdicts, and the reason if there are none."""
    with db.read() as session:
        items = [row for job_id in grader_run.job_ids for row in jobs.results(session, job_id)]
        by_item = verdicts.for_items(session, [row.id for row in items])
    reason = next((row.null_reason or row.state for row in items if row.id not in by_item), "")
    return [verdict for row in items for verdict in by_item.get(row.id, [])], reason
