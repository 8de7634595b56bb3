"""``/v1/graders``: OpenAI's graders, run and validated in the shape of OpenAI's API.

The same stands under ``/v1/fine_tuning/alpha/graders``, where OpenAI's client looks for it. A run is a job of one
completion: the grader is kept as a rubric, the item as a prompt, and workers do the rest. All of it is content, so that
the same run asked again is the same job, and what failed of it is tried again.
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
from rubricsvc.api.errors import declared
from rubricsvc.api.request import Db, Examine, Examined
from rubricsvc.core.prompt import Completion
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError, UnavailableError
from rubricsvc.formats.errors import Faults, Place
from rubricsvc.formats.native import usable_name
from rubricsvc.formats.openai_grader import parse, prompt_of
from rubricsvc.graders.model import Grader, rubric_of
from rubricsvc.graders.results import GraderRun, run_of
from rubricsvc.schemas import Wire
from rubricsvc.settings import Settings
from rubricsvc.store import completions, jobs, judges, leases, prompts, rubrics, verdicts
from rubricsvc.store.session import Database
from rubricsvc.store.tables import COMPLETED, JudgeRow

UNTAKEN_SECONDS = 30.0
"""How long a run waits for a worker while none is at work for its judges."""

router = APIRouter(tags=["graders"], route_class=StrictRoute)
_ALIAS = "/fine_tuning/alpha/graders"


class NewRun(Wire):
    """A grader, what it grades, and the row of data that its templates name."""

    grader: dict[str, JsonValue]
    model_sample: str
    item: dict[str, JsonValue] | None = None
    reference_answer: JsonValue = Field(None, description="as older clients send it: the item's field of that name")


class NewValidation(Wire):
    grader: dict[str, JsonValue]


class Validated(Wire):
    """The grader as it was sent."""

    grader: dict[str, JsonValue]


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


@router.post("/graders/validate", responses=declared())
@router.post(f"{_ALIAS}/validate", include_in_schema=False)
def validate(examine: Examined, new: Json[NewValidation]) -> Validated:
    """See that a grader can be run; 422 with the path of what is wrong where it cannot."""
    examine.rubric(rubric_of(parse(new.grader)))
    return Validated(grader=new.grader)


@router.post("/graders/run", responses=declared(404))
@router.post(f"{_ALIAS}/run", include_in_schema=False)
async def run(
    db: Db, examine: Examined, settings: Annotated[Settings, Depends(_settings)], new: Json[NewRun]
) -> GraderRun:
    """Run a grader on one sample, and wait for what it says.

    A grader's `model` is asked through the judge of that name, or else the newest judge of that model. Where the grader
    gives no number, `reward` is null and the flags say why. 404: no such judge. 503: no worker was there in time; the
    same request goes on where it was.
    """
    began = time.monotonic()
    task = await run_in_threadpool(_begin, db, examine, new)
    await _wait(db, task, began, settings.grader_seconds)
    found, why = await run_in_threadpool(_read, db, task)
    seconds = time.monotonic() - began
    return run_of(task.grader, task.rubric, found, models=task.models, seconds=seconds, unanswered=why)


@dataclass
class _Task:
    """A run under way. ``models``: by criterion, the model that is asked."""

    grader: Grader
    rubric: Rubric
    models: dict[str, str] = field(default_factory=dict)
    job_ids: list[int] = field(default_factory=list)
    judge_ids: list[int] = field(default_factory=list)


def _begin(db: Database, examine: Examine, new: NewRun) -> _Task:
    """Keep what there is to keep, and submit a job for each judge that is needed."""
    grader, faults = parse(new.grader), Faults()
    task = _Task(grader, rubric_of(grader))
    examine.rubric(task.rubric)
    older = {"reference_answer": new.reference_answer} if new.reference_answer is not None else {}
    prompt = prompt_of({**older, **(new.item or {})}, Place("item"), faults, ("item",))
    if prompt is None:
        raise InvalidError(
            faults.kept[0].message, hint="an item is a mapping; its messages are chat messages", path="item"
        )
    with db.write() as session:
        prompt_id = prompts.add(session, prompt).id
        completion_id = completions.add_many(session, [(prompt_id, Completion(text=new.model_sample))])[0]
        for judge, rubric in _shares(session, task.rubric):
            name = usable_name(f"grader {grader.label}")
            rubric_id = rubrics.add(session, rubric, name=name, origin="grader").id
            job = jobs.submit(session, judge_id=judge.id, items=[(completion_id, rubric_id)], name=name)
            if job.finished_at is not None and job.status != COMPLETED:
                jobs.retry(session, job.id)  # what is settled stays
            task.job_ids.append(job.id)
            task.judge_ids.append(judge.id)
            asked = [criterion.key for criterion in rubric.criteria if criterion.custom_prompt]
            task.models |= dict.fromkeys(asked, judge.value.model or judge.name)
    return task


def _shares(session: Session, rubric: Rubric) -> Iterator[tuple[JudgeRow, Rubric]]:
    """Who judges what of the rubric: a judge for each model that it names, and the checks with the first of them."""
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


async def _wait(db: Database, task: _Task, began: float, longest: float) -> None:
    """Until the jobs have ended. No connection is held meanwhile. A run behind others of a busy judge goes on waiting.

    Raises:
        UnavailableError: they have not in time.
    """
    pause, attended = 0.02, began
    while (state := await run_in_threadpool(_state, db, task)) != "ended":
        now = time.monotonic()
        waited, attended = now - began, now if state == "attended" else attended
        if now - attended > min(UNTAKEN_SECONDS, longest):
            hint = "is one running? `rubricsvc worker`, or serve on one machine; the same request goes on where it was"
            raise UnavailableError(f"no worker took this run within {waited:.0f} s", hint=hint)
        if waited > longest:
            hint = "send the same request again: it goes on where it was; RUBRICSVC_GRADER_SECONDS is how long it waits"
            raise UnavailableError(f"the run is still being judged after {waited:.0f} s", hint=hint)
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.5)


def _state(db: Database, task: _Task) -> Literal["ended", "attended", "unattended"]:
    """Whether the jobs have ended, and if not whether a worker is at work for their judges."""
    with db.read() as session:
        seen = [jobs.progress(session, job_id) for job_id in task.job_ids]
        if not any(one.pending + one.leased for one in seen):
            return "ended"
        return "attended" if leases.attended(session, task.judge_ids) else "unattended"


def _read(db: Database, task: _Task) -> tuple[list[Verdict], str]:
    """The verdicts, and why there are none where there are none."""
    with db.read() as session:
        items = [row for job_id in task.job_ids for row in jobs.results(session, job_id)]
        by_item = verdicts.for_items(session, [row.id for row in items])
    why = next((row.null_reason or row.state for row in items if row.id not in by_item), "")
    return [verdict for row in items for verdict in by_item.get(row.id, [])], why
