"""Methods of the clients, by noun: ``client.jobs.get(3)``, or ``await client.jobs.get(3)``."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Concatenate, TypeVar
from urllib.parse import quote

from pydantic_core import to_json

from rubricsvc import queries, schemas
from rubricsvc.client.transport import C, Method, Noun, P, lister, reader
from rubricsvc.core.audit import StoredAudit
from rubricsvc.core.evolution import EvolutionReport, EvolutionSummary
from rubricsvc.core.generation import Generation, Provenance
from rubricsvc.core.job_comparison import JobComparison, PairedBy
from rubricsvc.core.judge import Judge
from rubricsvc.core.label import Label
from rubricsvc.core.passport import Passport
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.rubric_analysis import RubricAnalysis
from rubricsvc.core.run import NewRun, RolloutGroup, RunHeartbeat, RunStep, StoredRollout, StoredRun, StoredStep
from rubricsvc.core.run_evaluation import EvaluationGroup, RunEvaluation, StoredEvaluation, StoredEvaluationCompletion
from rubricsvc.core.states import ReviewAction
from rubricsvc.lint import Finding, Severity
from rubricsvc.schemas.evolutions import EvolutionFilters
from rubricsvc.schemas.waiting import WAIT_SECONDS, Notify, OnProgress, log, polling


class Prompts(Noun[C]):
    """Methods of ``client.prompts``. A prompt is named by id or external id."""

    get = reader(schemas.StoredPrompt, "prompts/{}", object)
    page = lister(schemas.StoredPrompt, "prompts", queries.Paging)

    @Method
    async def add(self, prompt: Prompt | str, external_id: str | None = None) -> schemas.StoredPrompt:
        """Store a prompt; identical content is stored once."""
        value = Prompt.of(prompt) if isinstance(prompt, str) else prompt
        body = schemas.NewPrompt(prompt=value, external_id=external_id)
        return await self.send(schemas.StoredPrompt, "POST", "prompts", body=body)


class Rubrics(Noun[C]):
    """Methods of ``client.rubrics``. A version is named by id, name (the newest approved), name@version or digest."""

    get = reader(schemas.StoredRubric, "rubrics/{}", object)
    page = lister(schemas.StoredRubric, "rubrics", queries.RubricFilters)
    analyse = reader(RubricAnalysis, "rubrics/{}/analysis", queries.AnalysisQuery)
    history = reader(schemas.Page[schemas.RubricEvent], "rubrics/{}/history", queries.Paging)
    tests = reader(schemas.Page[schemas.StoredRubricTest], "rubrics/{}/tests", queries.Paging)
    provenance = reader(Provenance, "rubrics/{}/provenance", object)

    @Method
    async def generate(
        self,
        judge: int | str,
        prompts: Iterable[int | str],
        generation: Generation | None = None,
        *,
        name: str = "",
        key: str | None = None,
        budget: float | None = None,
    ) -> schemas.StoredJob:
        """Submit a job that generates a rubric for each prompt (id or external id); its items have the versions.

        The same idempotency ``key`` returns the same job; ``budget`` is in US dollars.

        Raises:
            ConflictError: the key belongs to another job.
        """
        settings = (generation or Generation()).model_dump()
        fields = {"judge": judge, "prompts": tuple(prompts), "name": name, "budget": budget, **settings}
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        body = schemas.NewGeneration.model_validate(fields)
        return await self.send(schemas.StoredJob, "POST", "rubrics/generate", body=body, headers=headers)

    @Method
    async def add(
        self,
        rubric: Rubric,
        name: str,
        *,
        prompt_id: int | None = None,
        parent: int | str | None = None,
        force: bool = False,
        draft: bool = False,
    ) -> schemas.StoredRubric:
        """Store a rubric version under a name; identical content is the same version.

        ``parent`` is the version that it was edited from; ``draft`` stores it for review.

        Raises:
            ConflictError: the parent has been edited already, and ``force`` is not set. The rubric is kept as a draft.
        """
        options: dict[str, Any] = {"prompt_id": prompt_id, "parent": parent, "force": force, "draft": draft}
        body = schemas.NewRubric(rubric=rubric, name=name, **options)
        return await self.send(schemas.StoredRubric, "POST", "rubrics", body=body)

    @Method
    async def review(self, ref: int | str, action: ReviewAction, *, comment: str | None = None) -> schemas.StoredRubric:
        """Submit, approve, reject or retire a version, or comment on it. Rejecting and commenting need a comment.

        Raises:
            ConflictError: the version has a state that the action does not start from; or it is to be approved, has
                examples, and its newest test did not pass.
        """
        body = schemas.NewReview(action=action, comment=comment)
        path = f"rubrics/{quote(str(ref), safe='@/')}/review"
        return await self.send(schemas.StoredRubric, "POST", path, body=body)

    @Method
    async def lint(
        self,
        rubric: Rubric,
        prompt: Prompt | str | None = None,
        *,
        rules: Sequence[str] = (),
        ignore: Sequence[str] = (),
        severity: Severity = "info",
    ) -> tuple[Finding, ...]:
        """Find faults of a rubric without a model; ``rules`` are those to apply (by default all), less ``ignore``."""
        value = Prompt.of(prompt) if isinstance(prompt, str) else prompt
        body = schemas.LintRequest(
            rubric=rubric, prompt=value, rules=tuple(rules), ignore=tuple(ignore), severity=severity
        )
        return (await self.send(schemas.LintReport, "POST", "rubrics/lint", body=body)).findings


T = TypeVar("T")


def several(completions: Iterable[T]) -> Iterable[T]:
    """Return the completions; raise a TypeError if they are one text."""
    if isinstance(completions, str):
        raise TypeError("completions is a str; expected a list, such as [text]")
    return completions


class Completions(Noun[C]):
    """Methods of ``client.completions``."""

    get = reader(schemas.StoredCompletion, "completions/{}", object)
    page = lister(schemas.StoredCompletion, "completions", queries.CompletionFilters)

    @Method
    async def add(self, prompt_id: int, completions: Iterable[Completion | str]) -> schemas.StoredIds:
        """Store completions of one prompt; the response has their ids in order.

        Raises:
            TypeError: ``completions`` is one text instead of several.
        """
        values = (Completion(text=one) if isinstance(one, str) else one for one in several(completions))
        items = tuple(schemas.NewCompletion(prompt_id=prompt_id, completion=value) for value in values)
        body = schemas.NewCompletions(completions=items)
        return await self.send(schemas.StoredIds, "POST", "completions", body=body)


class Judges(Noun[C]):
    """Methods of ``client.judges``. A judge is named by id or name."""

    get = reader(schemas.StoredJudge, "judges/{}", object)
    page = lister(schemas.StoredJudge, "judges", queries.Paging)
    audits = reader(schemas.Page[StoredAudit], "judges/{}/audits", queries.Paging)
    passport = reader(Passport, "judges/{}/passport", object)

    @Method
    async def add(self, judge: Judge) -> schemas.StoredJudge:
        """Store a judge under its name."""
        return await self.send(schemas.StoredJudge, "POST", "judges", body=schemas.NewJudge(judge=judge))


class Jobs(Noun[C]):
    """Methods of ``client.jobs``. A page of ``pairs`` may be empty without being the last."""

    get = reader(schemas.StoredJob, "jobs/{}", queries.JobQuery)
    page = lister(schemas.StoredJob, "jobs", queries.JobFilters)
    items = reader(schemas.Page[schemas.Item], "jobs/{}/items", queries.ItemFilters)
    pairs = reader(schemas.Page[schemas.PreferencePair], "jobs/{}/pairs", queries.PairFilters)

    @Method
    async def submit(
        self,
        judge: int | str,
        items: Iterable[tuple[int, int | str] | int],
        *,
        name: str = "",
        key: str | None = None,
        budget: float | None = None,
        min_coverage: float | None = None,
        allow_drafts: bool = False,
    ) -> schemas.StoredJob:
        """Submit a scoring job. The same idempotency ``key`` returns the same job; ``budget`` is in US dollars.

        ``items`` are pairs of completion id and rubric (id, name, name@version or digest), or completion ids alone for
        the rubrics of their prompts. ``min_coverage`` is used instead of the rubrics' own.

        Raises:
            NotApprovedError: a rubric is not approved, and ``allow_drafts`` is not set.
            ConflictError: the key belongs to a job with other items, another judge or another budget.
        """
        given = ((item, None) if isinstance(item, int) else item for item in items)
        pairs = tuple(schemas.NewItem(completion_id=completion_id, rubric=rubric) for completion_id, rubric in given)
        options: dict[str, Any] = {"name": name, "budget": budget, "min_coverage": min_coverage}
        body = schemas.NewJob(judge=judge, items=pairs, allow_drafts=allow_drafts, **options)
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return await self.send(schemas.StoredJob, "POST", "jobs", body=body, headers=headers)

    @Method
    async def wait(
        self,
        job_id: int,
        timeout: float | None = WAIT_SECONDS,
        on_progress: OnProgress | None = None,
        notify: Notify = log.warning,
    ) -> schemas.StoredJob:
        """Wait until a job is finished, and return it. ``on_progress`` is called with the job at each poll.

        Raises:
            TimeoutError: The job is not finished after ``timeout`` seconds (None: no limit). It goes on.
        """
        polls = polling(job_id, timeout, on_progress, notify)
        delay = next(polls)
        while True:
            await self.client.sleep(delay)
            job: schemas.StoredJob = await Jobs.get(self, job_id)
            try:
                delay = polls.send(job)
            except StopIteration:
                return job

    @Method
    async def report(self, job_id: int, *, completions: int | None = None) -> str:
        """Return the report of a job of up to 2,000 items: an HTML page.

        ``completions`` is the number of completions in each list: worst, best, without a reward.
        """
        params = {"completions": completions}
        return (await self.request("GET", f"jobs/{job_id}/report", params=params)).text

    @Method
    async def compare(self, a: int, b: int, *, by: PairedBy | None = None) -> JobComparison:
        """Compare job ``b`` with job ``a`` on the completions, or else the prompts, that both scored."""
        return await self.send(JobComparison, "GET", f"jobs/{a}/compare/{b}", params={"by": by})

    @Method
    async def cancel(self, job_id: int) -> schemas.StoredJob:
        """Cancel a job; scored items keep their rewards."""
        return await self.send(schemas.StoredJob, "POST", f"jobs/{job_id}/cancel")

    @Method
    async def rescore(
        self,
        job_id: int,
        *,
        rubric: Sequence[str | int] = (),
        budget: float | None = None,
        min_coverage: float | None = None,
        allow_drafts: bool = False,
    ) -> schemas.StoredJob:
        """Score a job's completions under the newest approved version of its rubrics, as a new job.

        ``rubric`` are versions to use in place of the newest (drafts with ``allow_drafts``), ``min_coverage`` is used
        instead of theirs. Only questions without a stored verdict are asked.
        """
        params = {"rubric": rubric, "budget": budget, "min_coverage": min_coverage, "allow_drafts": allow_drafts}
        return await self.send(schemas.StoredJob, "POST", f"jobs/{job_id}/rescore", params=params)

    @Method
    async def retry(self, job_id: int, *, budget: float | None = None) -> schemas.RetriedJob:
        """Score failed and cancelled items again."""
        return await self.send(schemas.RetriedJob, "POST", f"jobs/{job_id}/retry", params={"budget": budget})


class Verdicts(Noun[C]):
    """Methods of ``client.verdicts``."""

    page = lister(schemas.StoredVerdict, "verdicts", queries.VerdictFilters)


class Labels(Noun[C]):
    """Methods of ``client.labels``."""

    page = lister(schemas.StoredLabel, "labels", queries.LabelFilters)

    @Method
    async def add(self, labels: Iterable[tuple[int, int | str, Label]], *, replace: bool = False) -> schemas.StoredIds:
        """Store labels, each as (completion id, rubric, label); ``replace`` overwrites earlier ones of an annotator."""
        items = tuple(schemas.NewLabel(completion_id=id_, rubric=rubric, label=label) for id_, rubric, label in labels)
        body = schemas.NewLabels(labels=items, replace=replace)
        return await self.send(schemas.StoredIds, "POST", "labels", body=body)


class Evolutions(Noun[C]):
    """Methods of ``client.evolutions``."""

    get = reader(EvolutionReport, "evolutions/{}", object)
    page = lister(EvolutionSummary, "evolutions", EvolutionFilters)


class Runs(Noun[C]):
    """Methods of ``client.runs``: training runs. A trainer calls `create`, `heartbeat` and those that record."""

    get = reader(StoredRun, "runs/{}", object)
    page = lister(StoredRun, "runs", queries.RunFilters)
    steps = reader(schemas.Page[StoredStep], "runs/{}/steps", queries.Paging)
    rollouts = reader(schemas.Page[StoredRollout], "runs/{}/rollouts", queries.RolloutFilters)
    evaluations = reader(schemas.Page[StoredEvaluation], "runs/{}/evaluations", queries.EvaluationFilters)
    evaluation_completions = reader(
        schemas.Page[StoredEvaluationCompletion],
        "runs/{}/evaluations/completions",
        queries.EvaluationCompletionFilters,
    )

    @Method
    async def create(self, new: NewRun) -> StoredRun:
        """Begin a run, or continue that of the same key; steps after ``new.done`` are deleted."""
        return await self.send(StoredRun, "POST", "runs", body=new)

    @Method
    async def record(self, run_id: int, step: RunStep) -> StoredRun:
        """Record a step with its rollouts, in place of what is on record of it.

        Raises:
            InvalidError: an item of a rollout has scored another completion.
        """
        return await self.send(StoredRun, "POST", f"runs/{run_id}/steps", body=_compact(step), headers=_JSON)

    @Method
    async def record_evaluation(self, run_id: int, evaluation: RunEvaluation) -> StoredRun:
        """Record an evaluation with its completions, in place of the one of its step or of its baseline.

        Raises:
            InvalidError: an item of a reward has scored another completion.
        """
        body = _compact(evaluation)
        return await self.send(StoredRun, "POST", f"runs/{run_id}/evaluations", body=body, headers=_JSON)

    @Method
    async def heartbeat(self, run_id: int, heartbeat: RunHeartbeat) -> StoredRun:
        """Report that a run goes on, or its new state."""
        return await self.send(StoredRun, "POST", f"runs/{run_id}/heartbeat", body=heartbeat)

    @Method
    async def stop(self, run_id: int) -> StoredRun:
        """Ask a run to stop after its current step, with a checkpoint.

        Raises:
            ConflictError: it is not running.
        """
        return await self.send(StoredRun, "POST", f"runs/{run_id}/stop")

    @Method
    async def delete(self, run_id: int) -> None:
        """Delete the record of a run; its prompts, rubrics, completions, jobs and folder stay.

        Raises:
            ConflictError: it is running.
        """
        await self.request("DELETE", f"runs/{run_id}")


_JSON = {"Content-Type": "application/json"}


def _compact(report: RunStep | RunEvaluation) -> bytes:
    """Return a report as JSON without defaults, since a request is limited in values; rubrics are whole.

    The kind of a scale is a default, but readers need it to distinguish scales.
    """
    data = report.model_dump(mode="json", exclude_defaults=True)
    groups: Sequence[RolloutGroup | EvaluationGroup] = report.groups
    for plain, group in zip(data.get("groups", ()), groups, strict=True):
        plain["rubric"] = group.rubric.model_dump(mode="json")
    return to_json(data, inf_nan_mode="null")


def _importer(fields: Callable[P, object]) -> Method[Concatenate[str | Path, P], schemas.ImportedFile]:
    async def create(self: Noun[Any], path: str | Path, /, *_: P.args, **params: P.kwargs) -> schemas.ImportedFile:
        """Import a file of any format of docs/formats.md (but no folder), whole or not at all.

        Raises:
            FormatError: the file is invalid; ``errors`` lists what is wrong with it.
        """
        content, query = Path(path).read_bytes(), {"name": Path(path).name, **params}
        return await self.send(schemas.ImportedFile, "POST", "imports", body=content, params=query)

    return Method(create)


class Imports(Noun[C]):
    """Methods of ``client.imports``."""

    create = _importer(queries.ImportQuery)
