"""Wire types of jobs and their rewards, exports and comparisons."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from rubricsvc.core.base import Name, Text, Value
from rubricsvc.core.estimate import Estimate
from rubricsvc.core.generation import Generation
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import ItemState, JobKind, JobStatus
from rubricsvc.core.verdict import Verdict
from rubricsvc.queries import MAX_LIMIT, MAX_REWARD_SECONDS, Id, Paging, Ref, Whole
from rubricsvc.schemas.base import Batch, Stored, Wire, example


class NewItem(Wire):
    """A completion and the rubric that scores it."""

    completion_id: Id = Field(description="Id of the completion.")
    rubric: Id | Ref | None = Field(
        None,
        description="Id, name (newest approved version), name@version or digest; by default the newest approved version"
        " of each rubric of the completion's prompt.",
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        """Accept a completion id alone, or a pair of completion id and rubric."""
        value = (value, None) if isinstance(value, int) else value
        return dict(zip(cls.model_fields, value, strict=True)) if isinstance(value, tuple) else value


MinCoverage = Annotated[float | None, Field(ge=0, le=1, description="Used instead of the rubrics' own min_coverage.")]
_KEY = Field(min_length=1, max_length=200, description="Idempotency key; the same key gives the same job.")
Key = Annotated[str | None, _KEY]
Budget = Annotated[float | None, Field(gt=0, description="US dollars that the judge may cost. Needs a price.")]


class NewJob(Wire):
    """A job to submit: these completions, or all stored ones that have a rubric."""

    model_config = example({"judge": "local-vllm", "items": [{"completion_id": 1, "rubric": "sky"}]})

    judge: Id | Ref = Field(description="Judge: name or id.")
    items: Batch[NewItem] | None = Field(None, min_length=1, description="Completions to score; null: all stored.")
    completions: tuple[NewItem, ...] | None = Field(
        None, fail_fast=True, description="Filter by completion; one without a rubric is left out."
    )
    rubric: Id | Ref | None = Field(None, description="Rubric: id or name; by default those of each prompt.")
    policy: Name | None = Field(None, description="Filter by policy.")
    limit: Whole | None = Field(None, ge=1, le=10**9, description="Maximum number of completions.")
    name: Name = Field("", description="Name of the job.")
    budget: Budget = None
    min_coverage: MinCoverage = None
    allow_drafts: bool = Field(False, description="Use rubrics that are not approved.")
    key: Key = None

    @model_validator(mode="after")
    def _one_selection(self) -> Self:
        filters = (self.completions, self.rubric, self.policy, self.limit)
        if self.items is not None and any(one is not None for one in filters):
            raise ValueError("items and completions, rubric, policy or limit exclude each other")
        return self


class JobProgress(Value):
    """Items by state, and verdicts so far. ``failed`` items have at least one failed verdict."""

    total: int = Field(description="All items.")
    pending: int = Field(description="Items that wait for a worker.")
    leased: int = Field(description="Items that a worker scores.")
    done: int = Field(description="Items without a failed verdict.")
    failed: int = Field(description="Items with a failed verdict.")
    cancelled: int = Field(description="Items of a cancelled job.")
    verdicts: int = Field(description="Verdicts that did not fail.")
    failed_verdicts: int = Field(description="Verdicts that failed.")

    @property
    def finished(self) -> int:
        """Items that are done, failed or cancelled."""
        return self.done + self.failed + self.cancelled


class ReservedBudget(Value):
    """US dollars of a job's budget that are reserved."""

    held: float = Field(description="Reserved by workers for calls in progress.")
    lost: float = Field(description="Reserved by killed workers; counted as spent.")


class GenerationSummary(Value):
    """Results of a job that generates rubrics, so far."""

    prompts: int = Field(description="Prompts of the job.")
    rubrics: int = Field(description="Prompts that have a rubric.")
    drafts: int = Field(description="Rubrics that are drafts: refused by the gate, or not reviewed yet.")
    refused_by: dict[str, int] = Field(description="Rubrics that the gate refused, by reason.")
    reasons: dict[str, int] = Field(description="Prompts without a rubric, by reason.")
    cost: float | None = Field(description="US dollars; null if the judge has no price.")
    asked_again: int = Field(description="Questions that were asked again although a reply had been stored.")


class JobSummary(Value):
    """Results of a job so far. ``voting`` is for panels, cascades and pairwise judges."""

    rewards: int = Field(description="Items with a reward.")
    mean_reward: float | None = Field(description="Mean of these rewards.")
    reasons: dict[str, int] = Field(description="Failed verdicts by reason.")
    vetoed: dict[str, int] = Field(description="Vetoed rewards by required criterion.")
    cached_share: float | None = Field(description="Share of counted prompt tokens from the prefix cache; null: none.")
    quotes: int | None = Field(description="Quotes in the verdicts; null if no judge quoted.")
    quotes_not_found: int | None = Field(description="Quotes that are not in the completion.")
    voting: dict[str, float] = Field(description="Figures of panels, cascades and pairwise judges, by name.")
    reserved: ReservedBudget = Field(description="Budget that is reserved.")
    generation: GenerationSummary | None = Field(None, description="Results of a job that generates rubrics.")


class StoredJob(Stored):
    """A stored job."""

    kind: JobKind = Field("score", description="Whether it scores completions or generates rubrics.")
    name: str = Field(description="Name of the job.")
    judge_id: int = Field(description="Id of the judge.")
    judge: str = Field(description="Name of the judge.")
    status: JobStatus = Field(description="Status of the job.")
    finished_at: datetime | None = Field(description="Time at which its last item was finished.")
    budget: float | None = Field(None, description="US dollars that the judge may cost.")
    spent: float = Field(0.0, description="US dollars, if the judge has a price.")
    min_coverage: float | None = Field(None, description="Used instead of the rubrics' own.")
    settings: Generation | None = Field(None, description="How rubrics are generated.")
    workers: int | None = Field(None, description="Running workers, if the job is not finished; null in lists.")
    progress: JobProgress | None = Field(None, description="Items by state.")
    summary: JobSummary | None = Field(
        None, description="Results so far; null in lists, and until the job is finished unless it is requested."
    )

    is_new: bool = Field(False, description="Whether the request has made it.")
    notes: tuple[str, ...] = Field((), description="What the request has left out.")
    hints: tuple[str, ...] = Field((), description="What to do about failures, vetoes and costs; with the summary.")

    @property
    def finished(self) -> bool:
        """Whether no item is pending or leased."""
        return self.finished_at is not None


class RetryRequest(Wire):
    """How to score failed and cancelled items again."""

    budget: float | None = Field(None, gt=0, description="New budget in US dollars, for the whole job.")


class RetriedJob(Wire):
    """Result of a retry."""

    reopened: int = Field(description="Items to be scored again.")
    job: StoredJob = Field(description="The job.")


class Item(Wire):
    """A completion of a job with its reward, which is null if too little was judged; or a prompt with its rubric."""

    id: int = Field(description="Id of the item.")
    prompt_id: int = Field(description="Id of the prompt.")
    prompt_external_id: str | None = Field(None, description="The prompt's id in its source.")
    completion_id: int | None = Field(description="Id of the completion; null if rubrics are generated.")
    completion_external_id: str | None = Field(None, description="The completion's id in its source.")
    policy: str = Field("", description="Name of the model that wrote the completion.")
    text: str = Field(
        "", description="First 200 characters of the completion, or of the prompt for a rubric; in lists of items."
    )
    rubric_id: int | None = Field(description="Id of the rubric version; null until it is generated.")
    rubric: str | None = Field(description="Rubric version, as name@version.")
    state: ItemState = Field(description="State of the item. There is no reward before it is done.")
    reward: float | None = Field(description="Reward by the formula; null if too little was judged.")
    null_reason: str | None = Field(description="Why there is no reward, or no rubric.")
    coverage: float | None = Field(description="Share of the rubric's weight that was judged.")
    formula: str | None = Field(description="Formula of the reward.")
    vetoed_by: str | None = Field(description="Required criterion that took the reward down to 0.")
    verdicts: tuple[Verdict, ...] = Field((), description="Verdicts, by criterion.")


ExportFormat = Literal["jsonl", "csv", "parquet", "html"]
ExportKind = Literal["completion", "sft", "dpo"]


class ExportQuery(Paging):
    """What is exported: rewards and verdicts with their texts, or examples for TRL's trainers."""

    limit: Whole = Field(200, ge=1, le=MAX_LIMIT, description="Maximum completions, or prompts of examples.")
    kind: ExportKind = Field("completion", description="A row a completion, or examples for TRL: sft or dpo (pairs).")
    top: int | None = Field(None, ge=1, description="sft: completions of each prompt; by default the best one.")
    min_margin: float | None = Field(
        None,
        ge=0,
        description="dpo: minimum difference of the rewards; by default the judge's noise at 95 %, as measured by"
        " `judges repeatability`.",
    )

    @model_validator(mode="after")
    def _options_of_the_kind(self) -> Self:
        for name, kind in (("top", "sft"), ("min_margin", "dpo")):
            if getattr(self, name) is not None and self.kind != kind:
                raise ValueError(f"{name} is an option of kind {kind}")
        return self


class Export(Wire):
    """A page of an export. Pass ``next`` as ``?after=`` to continue; it is null on the last page."""

    rows: tuple[dict[str, Any], ...] = Field(description="Lines of the file.")
    next: int | None = Field(description="Pass it as after to continue; null on the last page.")
    left_out: dict[str, int] = Field({}, description="Examples that were left out, by reason (docs/exports.md).")
    min_margin: float | None = Field(None, description="dpo: minimum difference of the rewards.")


PairedBy = Literal["completion", "prompt"]
Difference = Literal["judge", "rubrics", "min_coverage", "policies", "completions"]


class ComparedJob(Value):
    """One of the two jobs. ``mean_reward`` is the mean over what is paired."""

    job_id: int
    name: str
    judge: str
    judge_digest: str
    rubrics: tuple[str, ...] = Field(description="Versions as name@version, of what both jobs scored.")
    policies: tuple[str, ...]
    mean_reward: float | None


class CriterionComparison(Value):
    """One criterion on both sides, or a pool. A mean value over the samples of a prompt counts as met from 0.5 on.

    ``key_b`` differs from ``key_a`` where a criterion of the same wording has another key; ``reworded`` are criteria
    of the same key with other words.
    """

    rubric: str
    key_a: str
    key_b: str
    reworded: bool
    pitfall: bool
    paired: int = Field(description="Completions or prompts with a value on both sides; of a pool, values of criteria.")
    mean_a: float
    mean_b: float
    difference: Estimate = Field(description="B less A, with the t interval over prompts.")
    to_met: int = Field(description="Below 0.5 in A, 0.5 or above in B.")
    to_unmet: int = Field(description="0.5 or above in A, below 0.5 in B.")


class Moved(Value):
    """A completion (or prompt) whose reward differs, by the ids of the database and those that they came with."""

    prompt_id: int
    prompt_external_id: str | None
    completion_id: int | None = Field(None, description="Null where prompts are paired.")
    completion_external_id: str | None = None
    reward_a: float
    reward_b: float
    difference: float


class JobComparison(Value):
    """Job B compared with job A: differences are B less A.

    Where no completion is in both jobs, prompts are paired, and a prompt's reward is the mean over its completions.
    """

    a: ComparedJob
    b: ComparedJob
    paired_by: PairedBy
    differs: tuple[Difference, ...] = Field(description="What differs between the jobs.")
    paired: int = Field(description="Completions or prompts with a reward on both sides.")
    prompts: int
    left_out: dict[str, int] = Field(description="Completions or prompts that are not paired, by reason.")
    mean_difference: Estimate = Field(description="With the t interval over prompts, from 5 prompts on.")
    kendall_tau_within_prompts: Estimate = Field(description="Tau-b over the completions of one prompt.")
    criteria: tuple[CriterionComparison, ...] = Field(description="By falling number of values that cross 0.5.")
    moved: tuple[Moved, ...] = Field(description="Those whose reward differs most.")


class JudgeCurve(Value):
    """What the samples that one judge chooses are worth."""

    job_id: int
    judge: str
    gold: tuple[Estimate, ...] = Field(description="Gold of the best of each n by the judge's reward.")
    gain: Estimate = Field(description="Gold at the largest n less that of one sample, paired by prompt.")
    oracle_share: Estimate = Field(description="That gain as a share of the oracle's, with an interval over prompts.")
    difference: Estimate | None = Field(description="Gold at the largest n less that of the first judge's choice.")


class BestOfN(Value):
    """Best-of-n by each judge on the same samples. Estimates are over prompts, with 95 % t intervals."""

    gold_source: str = Field(description="Where the gold is from.")
    prompts: int
    left_out: dict[str, int] = Field(description="Completions that are not used, by reason.")
    n: tuple[int, ...]
    oracle: tuple[Estimate, ...] = Field(description="Gold of the best of each n by the gold: a perfect judge.")
    judges: tuple[JudgeCurve, ...]


_Plain, _Value = Tag("[plain]"), Tag("[value]")
_BY_TYPE = Discriminator(lambda value: "[plain]" if isinstance(value, int | str) else "[value]")
"""Which member of the unions below a value is; names in brackets are no part of an error's path."""
_Stored = Annotated[Id | Ref, _Plain]

GivenPrompt = Annotated[_Stored | Annotated[Prompt, _Value], _BY_TYPE]
"""A prompt, or the id or external id of a stored one."""

GivenRubric = Annotated[_Stored | Annotated[Rubric, _Value], _BY_TYPE]
"""A rubric, or the id, name, name@version or digest of a stored one."""

GivenCompletion = Annotated[Annotated[Id | Text, _Plain] | Annotated[Completion, _Value], _BY_TYPE]
"""A completion, its text alone, or the id of a stored one."""


class NewRewards(Wire):
    """Completions of several prompts, to be scored in one job."""

    model_config = example(
        {
            "judge": "local-vllm",
            "prompts": [1, {"messages": [{"role": "user", "content": "Why is the sky blue?"}]}],
            "rubrics": ["sky@1"],
            "completions": [["Air scatters short waves more than long ones.", "The sea."], ["It is painted."]],
        }
    )

    judge: Id | Ref = Field(description="Id or name.")
    judge_digest: str | None = Field(None, description="Refuse another judge of this name, with 409.")
    prompts: Batch[GivenPrompt] = Field(min_length=1, description="Prompts, or their ids or external ids.")
    rubrics: Batch[GivenRubric | None] = Field(
        (),
        description="A rubric for each prompt, or one for all: a rubric, or id, name (newest approved version),"
        " name@version or digest. Null, or none at all: the prompt's own.",
    )
    prompt_names: Batch[Name] = Field((), description="For each prompt its external id, if it is a new value.")
    rubric_names: Batch[Name] = Field(
        (), description="For each rubric its name, if it is a new value and the name too."
    )
    completions: Batch[Annotated[tuple[GivenCompletion, ...], Field(min_length=1)]] = Field(
        min_length=1, description="The completions of each prompt: texts, values or ids."
    )
    timeout: float = Field(30.0, ge=0, le=MAX_REWARD_SECONDS, description="Seconds to wait; then the response is 202.")
    name: Name = Field("", description="Name of the job.")
    budget: Budget = None
    min_coverage: MinCoverage = None
    allow_drafts: bool = Field(False, description="Use rubrics that are not approved.")
    key: Key = None


class Rewards(Wire):
    """The rewards of a job."""

    job_id: int = Field(description="Id of the job.")
    judge: str = Field(description="Name of the judge.")
    status: JobStatus = Field(description="Status of the job.")
    workers: int | None = Field(description="Running workers, if the job is not finished.")
    rewards: tuple[Item, ...] = Field(
        description="Items without their verdicts, in the order of the request (prompt by prompt); of a job by id."
    )
