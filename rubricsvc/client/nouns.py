"""Methods of the clients, by noun: ``client.jobs.get(3)``, or ``await client.jobs.get(3)``."""

import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pydantic_core import to_json

from rubricsvc import queries
from rubricsvc.client.transport import C, Noun, endpoint, method, ref_endpoint
from rubricsvc.core import evolution
from rubricsvc.core.audit import Audit, Repeatability, StoredAudit
from rubricsvc.core.generation import Provenance
from rubricsvc.core.judge import JudgedCompletion
from rubricsvc.core.passport import Passport
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric_analysis import RewardChanges, RewardComparison, RubricAnalysis, RubricTest, WeightFit
from rubricsvc.errors import FormatError
from rubricsvc.queries import EvaluationFilters
from rubricsvc.schemas import base, jobs, judges, rubrics, runs
from rubricsvc.schemas.completions import (
    NewCompletions,
    NewLabels,
    NewPrompt,
    StoredCompletion,
    StoredLabel,
    StoredPrompt,
    StoredVerdict,
)
from rubricsvc.stats.reports import AgreementReport, CalibratedJudge
from rubricsvc.waiting import WAIT_SECONDS, Notify, OnProgress, log, polling


class Prompts(Noun[C]):
    """Methods of ``client.prompts``. A prompt is named by id or external id."""

    get = ref_endpoint(StoredPrompt, "GET prompts/{}", object)
    delete = ref_endpoint(base.Deletion, "DELETE prompts/{}", queries.DeletionQuery)
    page = endpoint(base.Page[StoredPrompt], "GET prompts", queries.Paging)

    add = endpoint(StoredPrompt, "POST prompts", NewPrompt)


class Rubrics(Noun[C]):
    """Methods of ``client.rubrics``. A version is named by id, name (the newest approved), name@version or digest."""

    get = ref_endpoint(rubrics.StoredRubric, "GET rubrics/{}", queries.RubricQuery)
    delete = ref_endpoint(base.Deletion, "DELETE rubrics/{}", queries.DeletionQuery)
    page = endpoint(base.Page[rubrics.StoredRubric], "GET rubrics", queries.RubricFilters)
    analyse = ref_endpoint(RubricAnalysis, "GET rubrics/{}/analysis", queries.AnalysisQuery)
    fit = ref_endpoint(WeightFit, "POST? rubrics/{}/fit", queries.FitQuery)
    history = ref_endpoint(base.Page[rubrics.RubricEvent], "GET rubrics/{}/history", queries.Paging)
    tests = ref_endpoint(base.Page[rubrics.StoredRubricTest], "GET rubrics/{}/tests", queries.Paging)
    provenance = ref_endpoint(Provenance, "GET rubrics/{}/provenance", object)

    generate = endpoint(jobs.StoredJob, "POST rubrics/generate", rubrics.NewGeneration)
    reward_changes = endpoint(RewardChanges, "POST rubrics/reward_changes", RewardComparison)
    lint = endpoint(rubrics.LintReport, "POST rubrics/lint", rubrics.LintRequest)
    add = endpoint(rubrics.StoredRubric, "POST rubrics", rubrics.NewRubric)
    add_test = ref_endpoint(rubrics.StoredRubricTest, "POST rubrics/{}/tests", RubricTest)
    review = ref_endpoint(rubrics.StoredRubric, "POST rubrics/{}/review", rubrics.NewReview)


T = TypeVar("T")


def several(completions: Iterable[T]) -> Iterable[T]:
    """Return the completions; raise a TypeError if they are one text."""
    if isinstance(completions, str):
        raise TypeError("completions is a str; expected a list, such as [text]")
    return completions


class Completions(Noun[C]):
    """Methods of ``client.completions``."""

    get = ref_endpoint(StoredCompletion, "GET completions/{}", object)
    delete = ref_endpoint(base.Deletion, "DELETE completions/{}", queries.DeletionQuery)
    page = endpoint(base.Page[StoredCompletion], "GET completions", queries.CompletionFilters)
    add_samples = endpoint(base.StoredIds, "POST completions/samples", NewCompletions)

    @method
    async def add(self, prompt_id: int, completions: Iterable[Completion | str]) -> base.StoredIds:
        """Store completions of one prompt; the response has their ids in order.

        Raises:
            TypeError: ``completions`` is one text instead of several.
        """
        items = [{"prompt_id": prompt_id, "completion": one} for one in several(completions)]
        body = base.request(NewCompletions, completions=items)
        return await self.send(base.StoredIds, "POST", "completions", body=body)


class Judges(Noun[C]):
    """Methods of ``client.judges``. A judge is named by id or name."""

    get = ref_endpoint(judges.StoredJudge, "GET judges/{}", object)
    page = endpoint(base.Page[judges.StoredJudge], "GET judges", queries.Paging)
    audits = ref_endpoint(base.Page[StoredAudit], "GET judges/{}/audits", queries.Paging)
    passport = ref_endpoint(Passport, "GET judges/{}/passport", object)

    completions = ref_endpoint(base.Page[JudgedCompletion], "GET judges/{}/completions", queries.JudgedFilters)
    agreement = ref_endpoint(AgreementReport, "GET judges/{}/agreement", queries.AgreementQuery)

    add = endpoint(judges.StoredJudge, "POST judges", judges.NewJudge)
    calibrate = ref_endpoint(CalibratedJudge, "POST? judges/{}/calibrate", queries.CalibrationQuery)
    record_audit = ref_endpoint(StoredAudit, "POST judges/{}/audits", Audit)
    record_repeatability = ref_endpoint(judges.StoredJudge, "POST judges/{}/repeatability", Repeatability)


class Jobs(Noun[C]):
    """Methods of ``client.jobs``."""

    get = ref_endpoint(jobs.StoredJob, "GET jobs/{}", queries.JobQuery)
    delete = ref_endpoint(base.Deletion, "DELETE jobs/{}", queries.DeletionQuery)
    page = endpoint(base.Page[jobs.StoredJob], "GET jobs", queries.JobFilters)
    items = ref_endpoint(base.Page[jobs.Item], "GET jobs/{}/items", queries.ItemFilters)
    export = ref_endpoint(jobs.Export, "GET jobs/{}/export", jobs.ExportQuery)
    compare = ref_endpoint(jobs.JobComparison, "GET jobs/{}/compare", queries.CompareQuery)
    best_of_n = endpoint(jobs.BestOfN, "GET jobs/best_of_n", queries.BestOfNQuery)
    submit = endpoint(jobs.StoredJob, "POST jobs", jobs.NewJob)
    cancel = ref_endpoint(jobs.StoredJob, "POST jobs/{}/cancel", object)
    rescore = ref_endpoint(jobs.StoredJob, "POST? jobs/{}/rescore", queries.RescoreQuery)
    retry = ref_endpoint(jobs.RetriedJob, "POST? jobs/{}/retry", jobs.RetryRequest)

    @method
    async def wait(
        self,
        job_id: int,
        timeout: float | None = WAIT_SECONDS,
        on_progress: OnProgress | None = None,
        notify: Notify = log.warning,
    ) -> jobs.StoredJob:
        """Wait until a job is finished, and return it. ``on_progress`` is called with the job at each poll.

        Raises:
            TimeoutError: The job is not finished after ``timeout`` seconds (None: no limit). It goes on.
        """
        next_delay = polling(job_id, timeout, on_progress, notify)
        while True:
            job: jobs.StoredJob = await Jobs.get(self, job_id)
            if (delay := next_delay(job)) is None:
                return job
            await self.client.sleep(delay)

    @method
    async def report(self, job_id: int, *, completions: int | None = None) -> str:
        """Return the report of a job of up to 2,000 items: an HTML page.

        ``completions`` is the number of completions in each list: worst, best, without a reward.
        """
        params = {"completions": completions}
        return (await self.request("GET", f"jobs/{job_id}/report", params=params)).text


class Verdicts(Noun[C]):
    """Methods of ``client.verdicts``."""

    page = endpoint(base.Page[StoredVerdict], "GET verdicts", queries.VerdictFilters)


class Labels(Noun[C]):
    """Methods of ``client.labels``."""

    delete = ref_endpoint(base.Deletion, "DELETE labels/{}", queries.DeletionQuery)
    page = endpoint(base.Page[StoredLabel], "GET labels", queries.LabelFilters)
    completions = endpoint(base.Page[JudgedCompletion], "GET labels/completions", queries.LabelledFilters)
    agreement = endpoint(AgreementReport, "GET labels/agreement", queries.AgreementQuery)

    add = endpoint(base.StoredIds, "POST labels", NewLabels)


class Evolutions(Noun[C]):
    """Methods of ``client.evolutions``."""

    get = ref_endpoint(evolution.EvolutionReport, "GET evolutions/{}", object)
    page = endpoint(base.Page[evolution.EvolutionSummary], "GET evolutions", queries.EvolutionFilters)
    start = endpoint(evolution.EvolutionData, "POST evolutions", evolution.EvolutionRequest)
    begin_step = endpoint(base.Page[evolution.EvolutionState], "POST evolutions/steps", evolution.NewEvolutionStep)
    record = ref_endpoint(evolution.EvolutionSummary, "POST evolutions/{}/rounds", evolution.NewEvolutionRound)


class Runs(Noun[C]):
    """Methods of ``client.runs``: training runs. A trainer calls `create`, `heartbeat` and those that record."""

    get = ref_endpoint(runs.StoredRun, "GET runs/{}", object)
    delete = ref_endpoint(base.Deletion, "DELETE runs/{}", queries.DeletionQuery)
    page = endpoint(base.Page[runs.StoredRun], "GET runs", queries.RunFilters)
    report = ref_endpoint(runs.RunReport, "GET runs/{}/report", object)
    steps = ref_endpoint(base.Page[runs.StoredStep], "GET runs/{}/steps", queries.Paging)
    rollouts = ref_endpoint(base.Page[runs.StoredRollout], "GET runs/{}/rollouts", queries.RolloutFilters)
    evaluations = ref_endpoint(base.Page[runs.StoredEvaluation], "GET runs/{}/evaluations", EvaluationFilters)
    evaluation_completions = ref_endpoint(
        base.Page[runs.StoredEvaluationCompletion],
        "GET runs/{}/evaluations/completions",
        queries.EvaluationCompletionFilters,
    )

    create = endpoint(runs.StoredRun, "POST runs", runs.NewRun)
    heartbeat = ref_endpoint(runs.StoredRun, "POST runs/{}/heartbeat", runs.RunHeartbeat)
    stop = ref_endpoint(runs.StoredRun, "POST runs/{}/stop", object)

    @method
    async def record(self, run_id: int, report: runs.RunStep | runs.RunEvaluation) -> runs.StoredRun:
        """Record a step with its rollouts, or an evaluation with its completions, in place of an earlier record of it.

        Raises:
            InvalidError: an item of a rollout or a reward has scored another completion.
        """
        # a request is limited in values, so defaults are left out; but not of rubrics: scales are known by their kind
        data = report.model_dump(mode="json", exclude_defaults=True)
        groups: Sequence[runs.RolloutGroup | runs.EvaluationGroup] = report.groups
        for plain, group in zip(data.get("groups", ()), groups, strict=True):
            plain["rubric"] = group.rubric.model_dump(mode="json")
        path = f"runs/{run_id}/{'steps' if isinstance(report, runs.RunStep) else 'evaluations'}"
        body, headers = to_json(data, inf_nan_mode="null"), {"Content-Type": "application/json"}
        return await self.send(runs.StoredRun, "POST", path, body=body, headers=headers)

    record_evaluation = record


class Imports(Noun[C]):
    """Methods of ``client.imports``."""

    @method
    async def create(
        self, source: str | Path | BinaryIO, query: queries.ImportQuery | None = None, /, **fields: Any
    ) -> base.ImportedFile:
        """Import a file of any format of docs/formats.md, whole or not at all.

        The source is its path, or a stream of its bytes; how it is read is an `ImportQuery`, or its fields.

        Raises:
            FormatError: the file is invalid; ``errors`` lists what is wrong with it.
        """
        params = (query or base.request(queries.ImportQuery, **fields)).model_dump(exclude_unset=True)
        if isinstance(source, str | Path):
            params |= {"name": Path(source).name}
            try:
                content = Path(source).read_bytes()
            except OSError as error:
                raise FormatError(f"{source}: cannot be read: {error.strerror}", hint="check the path") from None
        else:
            content = source.read()
        return await self.send(base.ImportedFile, "POST", "imports", body=content, params=params)


LARGE_BODY = 8 * 2**20
"""Characters of a request that is sent in parts; services refuse those above ``RUBRICSVC_MAX_BODY_MIB``."""


class Rewards(Noun[C]):
    """Methods of ``client.rewards``; `Client.score_many` waits for as long as it takes."""

    get = ref_endpoint(jobs.Rewards, "GET rewards/{}", queries.RewardsQuery)

    @method
    async def submit(self, new: jobs.NewRewards | None = None, /, **fields: Any) -> jobs.Rewards:
        """Submit completions of stored and new prompts as one job, and wait ``timeout`` seconds (at most 50) for it.

        Takes a `jobs.NewRewards` or its fields. A large request is sent in parts.

        Raises:
            NotFoundError, InvalidError: Something is unknown or does not belong together, at the ``path``.
        """
        body: jobs.NewRewards = new or base.request(jobs.NewRewards, **fields)
        if body.key is None:
            body = body.model_copy(update={"key": uuid.uuid4().hex})
        if len(body.model_dump_json()) > LARGE_BODY and len(body.prompts) == len(body.completions):
            body = await self._stored(body)
        return await self.send(jobs.Rewards, "POST", "rewards", body=body)

    async def _stored(self, body: jobs.NewRewards) -> jobs.NewRewards:
        """Store the prompts and completions of a large request, prompt by prompt; return it with their ids."""
        prompt_ids: list[int] = []
        completion_ids: list[tuple[int, ...]] = []
        for prompt, group in zip(body.prompts, body.completions, strict=True):
            stored_prompt = Prompts.add if isinstance(prompt, Prompt) else Prompts.get
            prompt_ids.append((await stored_prompt(self.client.prompts, prompt)).id)
            new = [one for one in group if not isinstance(one, int)]
            stored = await Completions.add(self.client.completions, prompt_ids[-1], new) if new else None
            ids = iter(stored.ids if stored else ())
            completion_ids.append(tuple(one if isinstance(one, int) else next(ids) for one in group))
        return body.model_copy(update={"prompts": tuple(prompt_ids), "completions": tuple(completion_ids)})
