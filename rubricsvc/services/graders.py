"""Run an OpenAI grader on one sample, as jobs of one completion.

The grader is stored as a rubric and the item as a prompt. All of it is content-addressed, so that the same run is the
same jobs, and a repeated request retries what failed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rubricsvc.core.judge import CHECKS
from rubricsvc.core.prompt import Completion
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.formats.openai_grader import parse, parse_prompt
from rubricsvc.formats.record import rubric_name
from rubricsvc.graders.model import Grader, GraderRun, rubric_of, run_of
from rubricsvc.services import lazy
from rubricsvc.services.local import LocalService
from rubricsvc.services.versions import add_version
from rubricsvc.store import completions, jobs, judges, leases
from rubricsvc.store.session import Database
from rubricsvc.store.tables import COMPLETED, JudgeRow


@dataclass
class PendingRun:
    """A run in progress. ``models``: criterion key to model name."""

    grader: Grader
    rubric: Rubric
    models: dict[str, str] = field(default_factory=dict)
    job_ids: list[int] = field(default_factory=list)


def parsed(data: Mapping[str, Any]) -> PendingRun:
    """Return the run of a grader, without jobs, or raise an InvalidError whose ``path`` names the field."""
    grader = parse(data)
    lazy.check_rubric(rubric := rubric_of(grader))
    return PendingRun(grader, rubric)


def submit(s: LocalService, grader: Mapping[str, Any], item: Mapping[str, Any], sample: str) -> PendingRun:
    """Store grader, item and sample, and submit one job per judge: one per model, the checks with the first of them.

    The rubric may be a draft; the jobs use it all the same. Raises an InvalidError for what is invalid, and a
    NotFoundError where no judge has the grader's model.
    """
    run, prompt = parsed(grader), parse_prompt(item)
    whole = run.rubric
    with s.db.write() as session:
        prompt_id = completions.add_prompt(session, prompt).id
        (completion_id,) = completions.add_many(session, [(prompt_id, Completion(text=sample))])
        asked = {
            criterion.key: judges.of_model(session, criterion.custom_prompt.model or "")
            for criterion in whole.criteria
            if criterion.custom_prompt is not None
        }
        first = next(iter(asked.values()), None)
        first = first or judges.find(session, CHECKS.name) or judges.add(session, CHECKS)
        parts: dict[JudgeRow, list[Criterion]] = {}
        for criterion in whole.criteria:
            parts.setdefault(asked.get(criterion.key, first), []).append(criterion)
        name = rubric_name(f"grader {run.grader.label}")
        for judge, criteria in parts.items():
            rubric = whole if len(parts) == 1 else Rubric(criteria=tuple(criteria), formula="mean")
            items = [(completion_id, add_version(session, rubric, s.rubrics.edit, name=name, origin="grader").row.id)]
            job = jobs.submit(session, judge_id=judge.id, items=items, name=name, allow_drafts=True)
            if job.finished_at is not None and job.status != COMPLETED:
                jobs.retry(session, job.id)  # scored verdicts are kept
            run.job_ids.append(job.id)
        run.models |= {key: judge.value.model or judge.name for key, judge in asked.items()}
    return run


def result(db: Database, run: PendingRun, seconds: float) -> GraderRun | Literal["scoring", "no worker"]:
    """Return the result of a run that took ``seconds``; unless its jobs are finished, whether a worker is running."""
    with db.read() as session:
        progress = [jobs.progress(session, job_id) for job_id in run.job_ids]
        if any(one.pending + one.leased for one in progress):
            return "scoring" if leases.running_workers(session) else "no worker"
        rows = [row for job_id in run.job_ids for row in jobs.items(session, job_id)]
        by_item = completions.verdicts_of_items(session, [row.id for row in rows])
    unanswered = next((row.null_reason or row.state for row in rows if row.id not in by_item), "")
    answers = [verdict for row in rows for verdict in by_item.get(row.id, [])]
    return run_of(run.grader, run.rubric, answers, models=run.models, seconds=seconds, unanswered=unanswered)
