"""Wire types of the HTTP API, shared by `rubricsvc.api` and `rubricsvc.client`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from rubricsvc.core.base import Name, Text
from rubricsvc.core.generation import Generation
from rubricsvc.core.jobs import JobProgress, JobSummary
from rubricsvc.core.judge import Judge
from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.repeatability import Repeatability
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import ItemState, JobKind, JobStatus, ReviewAction, RubricOrigin, RubricState
from rubricsvc.core.verdict import Verdict
from rubricsvc.queries import Id

MAX_BATCH = 10_000


Ref = Annotated[str, Field(min_length=1, max_length=220)]

_PROMPT: JsonDict = {"messages": [{"role": "user", "content": "Why is the sky blue?"}]}
_RUBRIC: JsonDict = {
    "criteria": [
        {"key": "scattering", "text": "Names Rayleigh scattering as the cause.", "weight": 10},
        {"key": "wrong-cause", "text": "Says that the sky reflects the sea.", "weight": -8},
    ]
}
_COMPLETION: JsonDict = {"text": "Air scatters short waves more than long ones.", "policy": "my-model", "step": 0}
_LABEL: JsonDict = {"criterion": "scattering", "annotator": "ann", "value": 1.0}
_JUDGE: JsonDict = {
    "name": "local-vllm",
    "model": "Qwen/Qwen3-8B",
    "mode": "readout",
    "endpoint": {"base_url": "http://127.0.0.1:8000/v1"},
}


class Wire(BaseModel):
    """Base class: unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @classmethod
    def of(cls, row: object, **fields: object) -> Self:
        """Return the attributes of a row or value, and ``fields``. What is in neither is the row's ``value``."""
        names = cls.model_fields.keys() - fields.keys()
        values = {name: getattr(row, name) if hasattr(row, name) else row.value for name in names}  # type: ignore[attr-defined]
        return cls.model_validate(values | fields, from_attributes=True)


def example(value: JsonDict) -> ConfigDict:
    """Return the configuration of a model with this example."""
    return ConfigDict(json_schema_extra={"examples": [value]})


class NewPrompt(Wire):
    """A prompt to store."""

    model_config = example({"prompt": _PROMPT, "external_id": "sky-1"})

    prompt: Prompt = Field(description="The prompt.")
    external_id: Name | None = Field(None, description="The prompt's id in its source.")


class NewRubric(Wire):
    """A rubric version to store."""

    model_config = example({"name": "sky", "rubric": _RUBRIC, "prompt_id": 1})

    name: Name = Field(min_length=1, description="Name of the rubric; other content under a name is its next version.")
    rubric: Rubric = Field(description="The rubric.")
    prompt_id: Id | None = Field(None, description="The prompt that the rubric belongs to, if any.")
    parent: Id | Ref | None = Field(
        None, description="The version that this one was edited from; 409 if it has been edited already."
    )
    force: bool = Field(False, description="Store it as a branch if the parent has been edited already.")
    draft: bool = Field(False, description="Store it as a draft, to be reviewed.")


class NewReview(Wire):
    """A step of a review."""

    model_config = example({"action": "reject", "comment": "Two questions in one criterion."})

    action: ReviewAction = Field(
        description="submit: draft to in_review. approve: in_review or retired to approved. reject: in_review to draft."
        " retire: approved to retired. comment: no change."
    )
    comment: Text | None = Field(
        None, max_length=10_000, description="Stored with the event; reject and comment need it."
    )


class NewCompletion(Wire):
    """A completion to store."""

    model_config = example({"prompt_id": 1, "completion": _COMPLETION})

    prompt_id: Id = Field(description="Id of the prompt.")
    completion: Completion = Field(description="The completion.")


class NewCompletions(Wire):
    """Completions to store."""

    completions: tuple[NewCompletion, ...] = Field(
        min_length=1, max_length=MAX_BATCH, fail_fast=True, description="Completions, of any prompts."
    )


class NewJudge(Wire):
    """A judge to store."""

    model_config = example({"judge": _JUDGE})

    judge: Judge = Field(description="The judge.")


class NewItem(Wire):
    """A completion and the rubric that scores it."""

    completion_id: Id = Field(description="Id of the completion.")
    rubric: Id | Ref | None = Field(
        None,
        description="Id, name (newest approved version), name@version or digest; by default the newest approved version"
        " of each rubric of the completion's prompt.",
    )


MinCoverage = Annotated[float | None, Field(ge=0, le=1, description="Used instead of the rubrics' own min_coverage.")]


class NewJob(Wire):
    """A job to submit."""

    model_config = example({"judge": "local-vllm", "items": [{"completion_id": 1, "rubric": "sky"}]})

    judge: Id | Ref = Field(description="Id or name.")
    items: tuple[NewItem, ...] = Field(
        min_length=1, max_length=MAX_BATCH, fail_fast=True, description="Completions to score."
    )
    name: Name = Field("", description="Name of the job.")
    budget: float | None = Field(None, gt=0, description="US dollars that the judge may cost. Needs a price.")
    min_coverage: MinCoverage = None
    allow_drafts: bool = Field(False, description="Use rubrics that are not approved.")


class NewLabel(Wire):
    """A label with its completion and rubric."""

    completion_id: Id = Field(description="Id of the completion.")
    rubric: Id | Ref = Field(description="Id, name (newest approved version), name@version or digest.")
    label: Label = Field(description="The label.")


class NewLabels(Wire):
    """Labels to store."""

    model_config = example({"labels": [{"completion_id": 1, "rubric": "sky", "label": _LABEL}]})

    labels: tuple[NewLabel, ...] = Field(
        min_length=1, max_length=MAX_BATCH, fail_fast=True, description="Labels, of any completions."
    )
    replace: bool = Field(False, description="Overwrite an earlier label of the same annotator.")


class Stored(Wire):
    """Fields of every stored row."""

    id: int = Field(description="Id in the database.")
    created_at: datetime = Field(description="Time at which it was stored.")


class StoredPrompt(Stored):
    """A stored prompt."""

    digest: str = Field(description="SHA-256 of the content.")
    external_id: str | None = Field(description="The prompt's id in its source.")
    prompt: Prompt = Field(description="The prompt.")


class StoredRubric(Stored):
    """A stored rubric version."""

    name: str = Field(description="Name of the rubric.")
    version: int = Field(description="Version of the name, from 1.")
    digest: str = Field(description="SHA-256 of the content.")
    prompt_id: int | None = Field(description="The prompt that the rubric belongs to, if any.")
    origin: str = Field(description=f"Origin: {', '.join(get_args(RubricOrigin))}.")
    state: RubricState = Field("approved", description="State of its review.")
    parent_id: int | None = Field(None, description="The version that it was edited from.")
    added_by: str | None = Field(None, description="The person or API key that added it.")
    rubric: Rubric = Field(description="The rubric.")


class RubricEvent(Stored):
    """A step of a rubric version's review; a comment has the same state before and after."""

    rubric_id: int = Field(description="Id of the rubric version.")
    rubric: str = Field(description="Rubric version, as name@version.")
    from_state: RubricState = Field(description="State before.")
    to_state: RubricState = Field(description="State after.")
    by: str = Field(description="The person or API key.")
    comment: str | None = Field(description="The comment.")


class StoredCompletion(Stored):
    """A stored completion."""

    digest: str = Field(description="SHA-256 of the content.")
    prompt_id: int = Field(description="Id of the prompt.")
    completion: Completion = Field(description="The completion.")


class StoredIds(Wire):
    """Ids of the sent completions or labels, in order."""

    ids: tuple[int, ...] = Field(description="Ids, in the order of the request.")


class StoredLabel(Stored):
    """A stored label."""

    completion_id: int = Field(description="Id of the completion.")
    rubric_id: int = Field(description="Id of the rubric version.")
    label: Label = Field(description="The label.")


class StoredJudge(Stored):
    """A stored judge."""

    name: str = Field(description="Name of the judge.")
    digest: str = Field(description="SHA-256 of everything but names and endpoints.")
    judge: Judge | None = Field(description="Null if what is stored is not valid any more.")
    error: str | None = Field(None, description="What is not valid, and the command that corrects it.")
    repeatability: Repeatability | None = Field(None, description="Result of the last measurement.")
    has_passport: bool = Field(False, description="Whether there is a passport, at /v1/judges/{ref}/passport.")


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

    @property
    def finished(self) -> bool:
        """Whether no item is pending or leased."""
        return self.finished_at is not None


class RetriedJob(Wire):
    """Result of a retry."""

    reopened: int = Field(description="Items to be scored again.")
    job: StoredJob = Field(description="The job.")


class Item(Wire):
    """A completion of a job with its reward, which is null if too little was judged; or a prompt with its rubric."""

    id: int = Field(description="Id of the item.")
    completion_id: int | None = Field(description="Id of the completion; null if rubrics are generated.")
    prompt_id: int | None = Field(None, description="Id of the prompt whose rubric is generated.")
    policy: str = Field("", description="Name of the model that wrote the completion.")
    rubric_id: int | None = Field(description="Id of the rubric version; null until it is generated.")
    state: ItemState = Field(description="State of the item.")
    reward: float | None = Field(description="Reward by the formula; null if too little was judged.")
    coverage: float | None = Field(description="Share of the rubric's weight that was judged.")
    formula: str | None = Field(description="Formula of the reward.")
    vetoed_by: str | None = Field(description="Required criterion that took the reward down to 0.")
    null_reason: str | None = Field(description="Why there is no reward.")
    verdicts: tuple[Verdict, ...] = Field((), description="Verdicts, by criterion.")


class PreferencePair(Wire):
    """Two completions of a prompt with different rewards, in the format of TRL's preference trainers."""

    prompt: tuple[dict[str, Any], ...] = Field(description="Messages of the prompt.")
    chosen: tuple[dict[str, Any], ...] = Field(description="Messages of the completion with the higher reward.")
    rejected: tuple[dict[str, Any], ...] = Field(description="Messages of the other one.")
    margin: float = Field(description="Difference of the rewards.")
    chosen_reward: float = Field(description="Reward of the chosen completion.")
    rejected_reward: float = Field(description="Reward of the rejected completion.")
    prompt_id: int = Field(description="Id of the prompt.")
    prompt_external_id: str | None = Field(description="The prompt's id in its source.")
    chosen_completion_id: int = Field(description="Id of the chosen completion.")
    rejected_completion_id: int = Field(description="Id of the rejected completion.")
    rubric: str = Field(description="Rubric version, as name@version.")
    formula: str | None = Field(description="Formula of the rewards.")
    judge: str = Field(description="Name of the judge.")


class StoredVerdict(Stored):
    """A stored verdict."""

    completion_id: int = Field(description="Id of the completion.")
    rubric_id: int = Field(description="Id of the rubric version.")
    judge_id: int = Field(description="Id of the judge.")
    verdict: Verdict = Field(description="The verdict.")


Data = TypeVar("Data")


class Page(Wire, Generic[Data]):
    """A page of a list. Pass ``next`` as ``?after=`` to continue; it is null on the last page."""

    data: tuple[Data, ...] = Field(description="Rows.")
    next: int | None = Field(description="Pass it as after to continue; null on the last page.")

    def __iter__(self) -> Iterator[Data]:  # type: ignore[override]  # pydantic's yields fields
        """Iterate over the rows of this page."""
        return iter(self.data)


class Alive(Wire):
    """Health response."""

    status: Literal["ok"]


class Ready(Alive):
    """Readiness response."""

    workers: int = Field(description="Running workers. Without one jobs are accepted, and wait.")


class FileProblem(Wire):
    """One error in an imported file: where it is, a stable ``code``, and a message."""

    line: int | None = Field(description="Line in the file.")
    column: int | None = Field(description="Column in the line.")
    path: str = Field(description="The field, like criteria[2].weight; empty for a whole record or file.")
    code: str = Field(description="Stable code of the error.")
    message: str = Field(description="What is wrong.")


class Problem(Wire):
    """An error: stable ``code``, message, hint how to fix it, and path in the request."""

    code: str = Field(description="Stable code of the error.")
    message: str = Field(description="What is wrong.")
    hint: str = Field("", description="How to correct it.")
    path: str = Field("", description="The field of the request.")
    errors: tuple[FileProblem, ...] = Field((), description="Of an imported file: every error in it.")


class ImportedFile(Wire):
    """What a file added. The ids are in the file's order, and include what existed before."""

    new: dict[str, int] = Field(description="Rows that were added, by noun.")
    existing: dict[str, int] = Field(description="Rows that existed before, by noun.")
    rubric_ids: tuple[int, ...] = Field(description="Ids of the rubric versions.")
    rubrics: tuple[str, ...] = Field((), description="The rubrics as name@version.")
    completion_ids: tuple[int, ...] = Field(description="Ids of the completions.")
    label_ids: tuple[int, ...] = Field(description="Ids of the labels.")
    omitted_labels: int = Field(description="Labels whose rubric or completion was not imported.")
    superseded: dict[str, int] = Field(description="Rubrics that exist as an earlier version, with the newest version.")
    not_approved: dict[str, RubricState] = Field(
        default_factory=dict, description="Rubrics (name@version) that are not approved, with their states."
    )
    skipped: tuple[FileProblem, ...] = Field(description="Errors of the records that were skipped.")
    skipped_count: int = Field(description="Errors of the records that were skipped, listed or not.")
    skipped_records: int = Field(description="Records that were skipped.")


class ErrorBody(Wire):
    """Body of an error response."""

    error: Problem = Field(description="The error.")
