"""Wire types of the HTTP API, shared by `rubricsvc.api` and `rubricsvc.client`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from rubricsvc.core.base import Name
from rubricsvc.core.jobs import JobProgress, JobSummary
from rubricsvc.core.judge import Judge
from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.repeatability import Repeatability
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import ItemState, JobStatus
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


def _example(example: JsonDict) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [example]})


class NewPrompt(Wire):
    """A prompt to store."""

    model_config = _example({"prompt": _PROMPT, "external_id": "sky-1"})

    prompt: Prompt
    external_id: Name | None = Field(None, description="The prompt's id in its source.")


class NewRubric(Wire):
    """A rubric version to store."""

    model_config = _example({"name": "sky", "rubric": _RUBRIC, "prompt_id": 1})

    name: Name = Field(min_length=1)
    rubric: Rubric
    prompt_id: Id | None = Field(None, description="The prompt that the rubric belongs to, if any.")
    origin: str = Field("api", max_length=40, description="Origin: api, imported, generated, …")


class NewCompletion(Wire):
    """A completion to store."""

    model_config = _example({"prompt_id": 1, "completion": _COMPLETION})

    prompt_id: Id
    completion: Completion


class NewCompletions(Wire):
    """Completions to store."""

    completions: tuple[NewCompletion, ...] = Field(min_length=1, max_length=MAX_BATCH, fail_fast=True)


class NewJudge(Wire):
    """A judge to store."""

    model_config = _example({"judge": _JUDGE})

    judge: Judge


class NewItem(Wire):
    """A completion and the rubric that scores it."""

    completion_id: Id
    rubric: Id | Ref | None = Field(
        None,
        description="Id, name (newest version), name@version or digest; by default the newest version of each rubric"
        " of the completion's prompt.",
    )


MinCoverage = Annotated[float | None, Field(ge=0, le=1, description="Used instead of the rubrics' own min_coverage.")]


class NewJob(Wire):
    """A job to submit."""

    model_config = _example({"judge": "local-vllm", "items": [{"completion_id": 1, "rubric": "sky"}]})

    judge: Id | Ref = Field(description="Id or name.")
    items: tuple[NewItem, ...] = Field(min_length=1, max_length=MAX_BATCH, fail_fast=True)
    name: Name = ""
    budget: float | None = Field(None, gt=0, description="US dollars that the judge may cost. Needs a price.")
    min_coverage: MinCoverage = None


class NewLabel(Wire):
    """A label with its completion and rubric."""

    completion_id: Id
    rubric: Id | Ref = Field(description="Id, name (newest version), name@version or digest.")
    label: Label


class NewLabels(Wire):
    """Labels to store."""

    model_config = _example({"labels": [{"completion_id": 1, "rubric": "sky", "label": _LABEL}]})

    labels: tuple[NewLabel, ...] = Field(min_length=1, max_length=MAX_BATCH, fail_fast=True)
    replace: bool = Field(False, description="Overwrite an earlier label of the same annotator.")


class Stored(Wire):
    """Fields of every stored row."""

    id: int
    created_at: datetime


class StoredPrompt(Stored):
    """A stored prompt."""

    digest: str
    external_id: str | None
    prompt: Prompt


class StoredRubric(Stored):
    """A stored rubric version."""

    name: str
    version: int
    digest: str
    prompt_id: int | None
    origin: str
    rubric: Rubric


class StoredCompletion(Stored):
    """A stored completion."""

    digest: str
    prompt_id: int
    completion: Completion


class StoredIds(Wire):
    """Ids of the sent completions or labels, in order."""

    ids: tuple[int, ...]


class StoredLabel(Stored):
    """A stored label."""

    completion_id: int
    rubric_id: int
    label: Label


class StoredJudge(Stored):
    """A stored judge."""

    name: str
    digest: str
    judge: Judge | None = Field(description="Null if what is stored is not valid any more.")
    error: str | None = Field(None, description="What is not valid, and the command that corrects it.")
    repeatability: Repeatability | None = None


class StoredJob(Stored):
    """A stored job.

    ``summary`` reads every verdict: it is None in lists, and until the job is finished unless it is requested.
    """

    name: str
    judge_id: int
    judge: str
    status: JobStatus
    finished_at: datetime | None
    budget: float | None = None
    spent: float = Field(0.0, description="US dollars, if the judge has a price.")
    min_coverage: float | None = Field(None, description="Used instead of the rubrics' own.")
    workers: int | None = Field(None, description="Running workers, if the job is not finished; null in lists.")
    progress: JobProgress | None = None
    summary: JobSummary | None = None

    @property
    def finished(self) -> bool:
        """Whether no item is pending or leased."""
        return self.finished_at is not None


class RetriedJob(Wire):
    """Result of a retry."""

    reopened: int = Field(description="Items to be scored again.")
    job: StoredJob


class Item(Wire):
    """A completion of a job with its reward, which is null if too little was judged."""

    id: int
    completion_id: int
    policy: str = ""
    rubric_id: int
    state: ItemState
    reward: float | None
    coverage: float | None
    formula: str | None
    vetoed_by: str | None = Field(description="the required criterion that took the reward down to 0")
    null_reason: str | None
    verdicts: tuple[Verdict, ...] = ()


class PreferencePair(Wire):
    """Two completions of a prompt with different rewards, in the format of TRL's preference trainers."""

    prompt: tuple[dict[str, Any], ...]
    chosen: tuple[dict[str, Any], ...]
    rejected: tuple[dict[str, Any], ...]
    margin: float
    chosen_reward: float
    rejected_reward: float
    prompt_id: int
    prompt_external_id: str | None
    chosen_completion_id: int
    rejected_completion_id: int
    rubric: str
    formula: str | None
    judge: str


class StoredVerdict(Stored):
    """A stored verdict."""

    completion_id: int
    rubric_id: int
    judge_id: int
    verdict: Verdict


Data = TypeVar("Data")


class Page(Wire, Generic[Data]):
    """A page of a list. Pass ``next`` as ``?after=`` to continue; it is null on the last page."""

    data: tuple[Data, ...]
    next: int | None

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

    line: int | None
    column: int | None
    path: str = Field(description="The field, like criteria[2].weight; empty for a whole record or file.")
    code: str
    message: str


class Problem(Wire):
    """An error: stable ``code``, message, hint how to fix it, and path in the request."""

    code: str
    message: str
    hint: str = ""
    path: str = ""
    errors: tuple[FileProblem, ...] = Field((), description="Of an imported file: every error in it.")


class ImportedFile(Wire):
    """What a file added. The ids are in the file's order, and include what existed before."""

    new: dict[str, int] = Field(description="Rows that were added, by noun.")
    existing: dict[str, int] = Field(description="Rows that existed before, by noun.")
    rubric_ids: tuple[int, ...]
    rubrics: tuple[str, ...] = Field((), description="The rubrics as name@version.")
    completion_ids: tuple[int, ...]
    label_ids: tuple[int, ...]
    omitted_labels: int = Field(description="Labels whose rubric or completion was not imported.")
    superseded: dict[str, int] = Field(description="Rubrics that exist as an earlier version, with the newest version.")
    skipped: tuple[FileProblem, ...] = Field(description="Errors of the records that were skipped.")
    skipped_count: int = Field(description="Errors of the records that were skipped, listed or not.")
    skipped_records: int


class ErrorBody(Wire):
    """Body of an error response."""

    error: Problem
