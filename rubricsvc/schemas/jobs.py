"""Wire types of jobs: their items, rewards and preference pairs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, model_validator

from rubricsvc.core.base import Name
from rubricsvc.core.generation import Generation
from rubricsvc.core.jobs import JobProgress, JobSummary
from rubricsvc.core.states import ItemState, JobKind, JobStatus
from rubricsvc.core.verdict import Verdict
from rubricsvc.queries import Id, Whole
from rubricsvc.schemas.base import MAX_BATCH, Ref, Stored, Wire, example


class NewItem(Wire):
    """A completion and the rubric that scores it."""

    completion_id: Id = Field(description="Id of the completion.")
    rubric: Id | Ref | None = Field(
        None,
        description="Id, name (newest approved version), name@version or digest; by default the newest approved version"
        " of each rubric of the completion's prompt.",
    )


MinCoverage = Annotated[float | None, Field(ge=0, le=1, description="Used instead of the rubrics' own min_coverage.")]


Key = Annotated[
    str | None, Field(min_length=1, max_length=200, description="Idempotency key; the same key gives the same job.")
]


class NewJob(Wire):
    """A job to submit: these completions, or all stored ones that have a rubric."""

    model_config = example({"judge": "local-vllm", "items": [{"completion_id": 1, "rubric": "sky"}]})

    judge: Id | Ref = Field(description="Judge: name or id.")
    items: tuple[NewItem, ...] | None = Field(
        None, min_length=1, max_length=MAX_BATCH, fail_fast=True, description="Completions to score; null: all stored."
    )
    rubric: Id | Ref | None = Field(None, description="Rubric: id or name; by default those of each prompt.")
    policy: Name | None = Field(None, description="Filter by policy.")
    limit: Whole | None = Field(None, ge=1, le=10**9, description="Maximum number of completions.")
    name: Name = Field("", description="Name of the job.")
    budget: float | None = Field(None, gt=0, description="US dollars that the judge may cost. Needs a price.")
    min_coverage: MinCoverage = None
    allow_drafts: bool = Field(False, description="Use rubrics that are not approved.")
    key: Key = None

    @model_validator(mode="after")
    def _one_selection(self) -> NewJob:
        if self.items is not None and (self.rubric, self.policy, self.limit) != (None, None, None):
            raise ValueError("items and rubric, policy or limit exclude each other")
        return self

    @classmethod
    def arguments(cls, **fields: Any) -> dict[str, Any]:
        """Accept pairs of completion id and rubric, or completion ids alone, as items."""
        if fields.get("items") is None:
            return fields
        given = ((one, None) if isinstance(one, int) else one for one in fields["items"])
        items = [
            {"completion_id": one[0], "rubric": one[1]} if isinstance(one, tuple) and len(one) == 2 else one
            for one in given
        ]
        return fields | {"items": items}


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

    budget: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="New budget in US dollars, for the whole job."
    )


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
    rubric_id: int | None = Field(description="Id of the rubric version; null until it is generated.")
    rubric: str | None = Field(description="Rubric version, as name@version.")
    state: ItemState = Field(description="State of the item. There is no reward before it is done.")
    reward: float | None = Field(description="Reward by the formula; null if too little was judged.")
    null_reason: str | None = Field(description="Why there is no reward, or no rubric.")
    coverage: float | None = Field(description="Share of the rubric's weight that was judged.")
    formula: str | None = Field(description="Formula of the reward.")
    vetoed_by: str | None = Field(description="Required criterion that took the reward down to 0.")
    verdicts: tuple[Verdict, ...] = Field((), description="Verdicts, by criterion.")
