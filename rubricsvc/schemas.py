"""What travels over HTTP: the core's values with what the database adds to them. The client reads the same classes."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from rubricsvc.core.base import MAX_ID, Name
from rubricsvc.core.judge import Judge
from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import ItemState, JobStatus
from rubricsvc.core.verdict import Verdict

MAX_LIMIT = 1000
MAX_BATCH = 10_000


def _plain_digits(value: object) -> object:
    """A whole number in an address is written in ASCII digits; Python would take ``1_0`` and ``１`` too."""
    if isinstance(value, str) and not re.fullmatch(r"-?[0-9]{1,20}", value):
        raise PydanticCustomError("plain_digits", "expected a whole number in plain digits")
    return value


Whole = Annotated[int, BeforeValidator(_plain_digits)]
Id = Annotated[Whole, Field(ge=1, le=MAX_ID)]
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
    """Base of all: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class NewPrompt(Wire):
    model_config = ConfigDict(json_schema_extra={"examples": [{"prompt": _PROMPT, "external_id": "sky-1"}]})

    prompt: Prompt
    external_id: Name | None = Field(None, description="the prompt's id where it comes from")


class NewRubric(Wire):
    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "sky", "rubric": _RUBRIC, "prompt_id": 1}]})

    name: Name = Field(min_length=1)
    rubric: Rubric
    prompt_id: Id | None = Field(None, description="the prompt that it was written for, if for one")
    origin: str = Field("api", max_length=40, description="who made it: api, imported, generated, …")


class NewCompletion(Wire):
    model_config = ConfigDict(json_schema_extra={"examples": [{"prompt_id": 1, "completion": _COMPLETION}]})

    prompt_id: Id
    completion: Completion


class NewCompletions(Wire):
    completions: tuple[NewCompletion, ...] = Field(min_length=1, max_length=MAX_BATCH)


class NewJudge(Wire):
    model_config = ConfigDict(json_schema_extra={"examples": [{"judge": _JUDGE}]})

    judge: Judge


class NewItem(Wire):
    """A completion and the rubric to score it by."""

    completion_id: Id
    rubric: Id | Ref = Field(description="id, name (its newest version), name@version or digest")


class NewJob(Wire):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"judge": "local-vllm", "items": [{"completion_id": 1, "rubric": "sky"}]}]}
    )

    judge: Id | Ref = Field(description="id or name")
    items: tuple[NewItem, ...] = Field(min_length=1, max_length=MAX_BATCH)
    name: Name = ""
    budget: float | None = Field(None, gt=0, description="US dollars that its judge may cost; needs a price")


class NewLabel(Wire):
    """A person's verdict, and what it is about."""

    completion_id: Id
    rubric: Id | Ref = Field(description="id, name (its newest version), name@version or digest")
    label: Label


class NewLabels(Wire):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"labels": [{"completion_id": 1, "rubric": "sky", "label": _LABEL}]}]}
    )

    labels: tuple[NewLabel, ...] = Field(min_length=1, max_length=MAX_BATCH)
    replace: bool = Field(False, description="where a person said otherwise before, this counts")


class Stored(Wire):
    id: int
    created_at: datetime


class StoredPrompt(Stored):
    digest: str
    external_id: str | None
    prompt: Prompt


class StoredRubric(Stored):
    name: str
    version: int
    digest: str
    prompt_id: int | None
    origin: str
    rubric: Rubric


class StoredCompletion(Stored):
    digest: str
    prompt_id: int
    completion: Completion


class StoredCompletionIds(Wire):
    """The ids of the completions that were sent, in their order."""

    ids: tuple[int, ...]


class StoredLabelIds(Wire):
    """The ids of the labels that were sent, in their order."""

    ids: tuple[int, ...]


class StoredLabel(Stored):
    completion_id: int
    rubric_id: int
    label: Label


class StoredJudge(Stored):
    digest: str
    judge: Judge


class JobProgress(Wire):
    """Items by state, and verdicts so far."""

    total: int
    pending: int
    leased: int
    done: int
    failed: int
    cancelled: int
    verdicts: int
    failed_verdicts: int


class JobMoney(Wire):
    """US dollars of a job's budget."""

    held: float = Field(description="reserved by workers for calls under way")
    lost: float = Field(description="reserved by workers that were killed; counted as spent")


class JobSummary(Wire):
    """What a job came to: what `rubricsvc jobs show` tells. ``voting`` is of a panel, a cascade or pairs."""

    rewards: int
    mean_reward: float | None
    reasons: dict[str, int] = Field(description="failed verdicts by reason")
    vetoed: dict[str, int] = Field(description="rewards by the required criterion that took them down")
    cached_share: float | None = Field(description="of the prompts' tokens, those that the engine had read before")
    voting: dict[str, float]
    reserved: JobMoney


class StoredJob(Stored):
    """``progress`` is given where one job is asked for, and not in lists: it is counted. ``summary``, for which all
    verdicts are read, is given of a job that has ended, and of others where it is asked for.
    """

    name: str
    judge_id: int
    judge: str
    status: JobStatus
    finished_at: datetime | None
    budget: float | None = None
    spent: float = Field(0.0, description="US dollars, where the judge's price is known")
    progress: JobProgress | None = None
    summary: JobSummary | None = None

    @property
    def finished(self) -> bool:
        return self.finished_at is not None


class RetriedJob(Wire):
    """What a retry did."""

    reopened: int = Field(description="items that are to be scored again")
    job: StoredJob


class Item(Wire):
    """One completion of a job and what it was judged worth. ``reward`` is null when too little was judged."""

    id: int
    completion_id: int
    rubric_id: int
    state: ItemState
    reward: float | None
    coverage: float | None
    formula: str | None
    vetoed_by: str | None = Field(description="the required criterion that took the reward down to 0")
    null_reason: str | None
    verdicts: tuple[Verdict, ...] = ()


class PreferencePair(Wire):
    """Two completions of a prompt of which one is worth more, as TRL's preference trainers read them."""

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
    completion_id: int
    rubric_id: int
    judge_id: int
    verdict: Verdict


Data = TypeVar("Data")


class Page(Wire, Generic[Data]):
    """``next`` goes into ``?after=`` to read on; null at the end."""

    data: tuple[Data, ...]
    next: int | None


class Ready(Wire):
    status: Literal["ok"]


class Problem(Wire):
    """What went wrong: a stable ``code``, a sentence, what mends it, and where in the request it lies."""

    code: str
    message: str
    hint: str = ""
    path: str = ""


class ErrorBody(Wire):
    error: Problem
