"""Methods of the clients, by noun: ``client.jobs.get(3)``, or ``await client.jobs.get(3)``."""

import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pydantic_core import to_json

from rubricsvc import queries, schemas
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
from rubricsvc.schemas import NewRewards, runs
from rubricsvc.schemas.base import request
from rubricsvc.schemas.jobs import JobComparison
from rubricsvc.stats.reports import AgreementReport, CalibratedJudge
from rubricsvc.waiting import WAIT_SECONDS, Notify, OnProgress, log, polling


class Prompts(Noun[C]):
    """Methods of ``client.prompts``. A prompt is named by id or external id."""

    get = ref_endpoint(schemas.StoredPrompt, "GET prompts/{}", object)
    delete = ref_endpoint(schemas.Deletion, "DELETE prompts/{}", queries.DeletionQuery)
    page = endpoint(schemas.Page[schemas.StoredPrompt], "GET prompts", queries.Paging)

    add = endpoint(schemas.StoredPrompt, "POST prompts", schemas.NewPrompt)


class Rubrics(Noun[C]):
    """Methods of ``client.rubrics``. A version is named by id, name (the newest approved), name@version or digest."""

    get = ref_endpoint(schemas.StoredRubric, "GET rubrics/{}", queries.RubricQuery)
    delete = ref_endpoint(schemas.Deletion, "DELETE rubrics/{}", queries.DeletionQuery)
    page = endpoint(schemas.Page[schemas.StoredRubric], "GET rubrics", queries.RubricFilters)
    analyse = ref_endpoint(RubricAnalysis, "GET rubrics/{}/analysis", queries.AnalysisQuery)
    fit = ref_endpoint(WeightFit, "POST? rubrics/{}/fit", queries.FitQuery)
    history = ref_endpoint(schemas.Page[schemas.RubricEvent], "GET rubrics/{}/history", queries.Paging)
    tests = ref_endpoint(schemas.Page[schemas.StoredRubricTest], "GET rubrics/{}/tests", queries.Paging)
    provenance = ref_endpoint(Provenance, "GET rubrics/{}/provenance", object)

    generate = endpoint(schemas.StoredJob, "POST rubrics/generate", schemas.NewGeneration)
    reward_changes = endpoint(RewardChanges, "POST rubrics/reward_changes", RewardComparison)
    lint = endpoint(schemas.LintReport, "POST rubrics/lint", schemas.LintRequest)
    add = endpoint(schemas.StoredRubric, "POST rubrics", schemas.NewRubric)
    add_test = ref_endpoint(schemas.StoredRubricTest, "POST rubrics/{}/tests", RubricTest)
    review = ref_endpoint(schemas.StoredRubric, "POST rubrics/{}/review", schemas.NewReview)


T = TypeVar("T")


def several(completions: Iterable[T]) -> Iterable[T]:
    """Return the completions; raise a TypeError if they are one text."""
    if isinstance(completions, str):
        raise TypeError("completions is a str; expected a list, such as [text]")
    return completions


class Completions(Noun[C]):
    """Methods of ``client.completions``."""

    get = ref_endpoint(schemas.StoredCompletion, "GET completions/{}", object)
    delete = ref_endpoint(schemas.Deletion, "DELETE completions/{}", queries.DeletionQuery)
    page = endpoint(schemas.Page[schemas.StoredCompletion], "GET completions", queries.CompletionFilters)
    add_samples = endpoint(schemas.StoredIds, "POST completions/samples", schemas.NewCompletions)

    @method
    async def add(self, prompt_id: int, completions: Iterable[Completion | str]) -> schemas.StoredIds:
        """Store completions of one prompt; the response has their ids in order.

        Raises:
            TypeError: ``completions`` is one text instead of several.
        """
        items = [{"prompt_id": prompt_id, "completion": one} for one in several(completions)]
        body = request(schemas.NewCompletions, completions=items)
        return await self.send(schemas.StoredIds, "POST", "completions", body=body)


class Judges(Noun[C]):
    """Methods of ``client.judges``. A judge is named by id or name."""

    get = ref_endpoint(schemas.StoredJudge, "GET judges/{}", object)
    page = endpoint(schemas.Page[schemas.StoredJudge], "GET judges", queries.Paging)
    audits = ref_endpoint(schemas.Page[StoredAudit], "GET judges/{}/audits", queries.Paging)
    passport = ref_endpoint(Passport, "GET judges/{}/passport", object)

    completions = ref_endpoint(schemas.Page[JudgedCompletion], "GET judges/{}/completions", queries.JudgedFilters)
    agreement = ref_endpoint(AgreementReport, "GET judges/{}/agreement", queries.AgreementQuery)

    add = endpoint(schemas.StoredJudge, "POST judges", schemas.NewJudge)
    calibrate = ref_endpoint(CalibratedJudge, "POST? judges/{}/calibrate", queries.CalibrationQuery)
    record_audit = ref_endpoint(StoredAudit, "POST judges/{}/audits", Audit)
    record_repeatability = ref_endpoint(schemas.StoredJudge, "POST judges/{}/repeatability", Repeatability)


class Jobs(Noun[C]):
    """Methods of ``client.jobs``."""

    get = ref_endpoint(schemas.StoredJob, "GET jobs/{}", queries.JobQuery)
    delete = ref_endpoint(schemas.Deletion, "DELETE jobs/{}", queries.DeletionQuery)
    page = endpoint(schemas.Page[schemas.StoredJob], "GET jobs", queries.JobFilters)
    items = ref_endpoint(schemas.Page[schemas.Item], "GET jobs/{}/items", queries.ItemFilters)
    export = ref_endpoint(schemas.jobs.Export, "GET jobs/{}/export", schemas.jobs.ExportQuery)
    compare = ref_endpoint(JobComparison, "GET jobs/{}/compare", queries.CompareQuery)
    best_of_n = endpoint(schemas.jobs.BestOfN, "GET jobs/best_of_n", queries.BestOfNQuery)
    submit = endpoint(schemas.StoredJob, "POST jobs", schemas.NewJob)
    cancel = ref_endpoint(schemas.StoredJob, "POST jobs/{}/cancel", object)
    rescore = ref_endpoint(schemas.StoredJob, "POST? jobs/{}/rescore", queries.RescoreQuery)
    retry = ref_endpoint(schemas.RetriedJob, "POST? jobs/{}/retry", schemas.RetryRequest)

    @method
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
        next_delay = polling(job_id, timeout, on_progress, notify)
        while True:
            job: schemas.StoredJob = await Jobs.get(self, job_id)
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

    page = endpoint(schemas.Page[schemas.StoredVerdict], "GET verdicts", queries.VerdictFilters)


class Labels(Noun[C]):
    """Methods of ``client.labels``."""

    delete = ref_endpoint(schemas.Deletion, "DELETE labels/{}", queries.DeletionQuery)
    page = endpoint(schemas.Page[schemas.StoredLabel], "GET labels", queries.LabelFilters)
    completions = endpoint(schemas.Page[JudgedCompletion], "GET labels/completions", queries.LabelledFilters)
    agreement = endpoint(AgreementReport, "GET labels/agreement", queries.AgreementQuery)

    add = endpoint(schemas.StoredIds, "POST labels", schemas.NewLabels)


class Evolutions(Noun[C]):
    """Methods of ``client.evolutions``."""

    get = ref_endpoint(evolution.EvolutionReport, "GET evolutions/{}", object)
    page = endpoint(schemas.Page[evolution.EvolutionSummary], "GET evolutions", queries.EvolutionFilters)
    start = endpoint(evolution.EvolutionData, "POST evolutions", evolution.EvolutionRequest)
    begin_step = endpoint(schemas.Page[evolution.EvolutionState], "POST evolutions/steps", evolution.NewEvolutionStep)
    record = ref_endpoint(evolution.EvolutionSummary, "POST evolutions/{}/rounds", evolution.NewEvolutionRound)


class Runs(Noun[C]):
    """Methods of ``client.runs``: training runs. A trainer calls `create`, `heartbeat` and those that record."""

    get = ref_endpoint(runs.StoredRun, "GET runs/{}", object)
    delete = ref_endpoint(schemas.Deletion, "DELETE runs/{}", queries.DeletionQuery)
    page = endpoint(schemas.Page[runs.StoredRun], "GET runs", queries.RunFilters)
    report = ref_endpoint(runs.RunReport, "GET runs/{}/report", object)
    steps = ref_endpoint(schemas.Page[runs.StoredStep], "GET runs/{}/steps", queries.Paging)
    rollouts = ref_endpoint(schemas.Page[runs.StoredRollout], "GET runs/{}/rollouts", queries.RolloutFilters)
    evaluations = ref_endpoint(schemas.Page[runs.StoredEvaluation], "GET runs/{}/evaluations", EvaluationFilters)
    evaluation_completions = ref_endpoint(
        schemas.Page[runs.StoredEvaluationCompletion],
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
    ) -> schemas.ImportedFile:
        """Import a file of any format of docs/formats.md, whole or not at all.

        The source is its path, or a stream of its bytes; how it is read is an `ImportQuery`, or its fields.

        Raises:
            FormatError: the file is invalid; ``errors`` lists what is wrong with it.
        """
        params = (query or request(queries.ImportQuery, **fields)).model_dump(exclude_unset=True)
        if isinstance(source, str | Path):
            params |= {"name": Path(source).name}
            try:
                content = Path(source).read_bytes()
            except OSError as error:
                raise FormatError(f"{source}: cannot be read: {error.strerror}", hint="check the path") from None
        else:
            content = source.read()
        return await self.send(schemas.ImportedFile, "POST", "imports", body=content, params=params)


LARGE_BODY = 8 * 2**20
"""Characters of a request that is sent in parts; services refuse those above ``RUBRICSVC_MAX_BODY_MIB``."""


class Rewards(Noun[C]):
    """Methods of ``client.rewards``; `Client.score_many` waits for as long as it takes."""

    get = ref_endpoint(schemas.Rewards, "GET rewards/{}", queries.RewardsQuery)

    @method
    async def submit(self, new: NewRewards | None = None, /, **fields: Any) -> schemas.Rewards:
        """Submit completions of stored and new prompts as one job, and wait ``timeout`` seconds (at most 50) for it.

        Takes a `NewRewards` or its fields. A large request is sent in parts.

        Raises:
            NotFoundError, InvalidError: Something is unknown or does not belong together, at the ``path``.
        """
        body: NewRewards = new or request(NewRewards, **fields)
        if body.key is None:
            body = body.model_copy(update={"key": uuid.uuid4().hex})
        if len(body.model_dump_json()) > LARGE_BODY and len(body.prompts) == len(body.completions):
            body = await self._stored(body)
        return await self.send(schemas.Rewards, "POST", "rewards", body=body)

    async def _stored(self, body: NewRewards) -> NewRewards:
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
