"""Training runs on record: what a trainer reports of its steps, and what is read of a run afterwards."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue

from rubricsvc.core.base import Name, Text, Title, Value
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import RunState, RunStatus
from rubricsvc.core.validation_messages import describe
from rubricsvc.core.verdict import Verdict


class NewRun(Value):
    """A training run that starts, or goes on after ``done`` steps."""

    key: Name = Field(
        min_length=1, description="Identity of the run, kept in its folder. The same key is the same run."
    )
    name: Title = Field(min_length=1, description="Name of the run.")
    host: str = Field(default="", max_length=255, description="Machine of the trainer.")
    folder: Text = Field(default="", description="Folder of the run on that machine.")
    judge: Name | None = Field(default=None, description="Name of the judge.")
    judge_digest: str | None = Field(
        default=None, max_length=64, description="Digest of the judge; only the stored judge that has it is linked."
    )
    steps_total: int = Field(ge=1, description="Number of steps that the run is to have.")
    done: int = Field(default=0, ge=0, description="Steps done so far; later ones on record are deleted.")
    config: dict[str, JsonValue] = Field(default_factory=dict, description="Configuration of the run.")


class Rollout(Value):
    """A completion that a policy sampled in a training step, with its reward."""

    completion: Completion = Field(description="The completion.")
    reward: float | None = Field(description="Reward; null if too little was judged.")
    null_reason: Text | None = Field(default=None, description="Why there is no reward.")
    advantage: float | None = Field(default=None, description="Advantage within the group; null without a reward.")
    tokens: int = Field(ge=0, description="Tokens of the completion.")
    truncated: bool = Field(default=False, description="Whether it was cut off at the maximum of tokens.")
    logprob_sum: float | None = Field(
        default=None, description="Sum of its tokens' log-probabilities in nats, under the policy that sampled it."
    )
    item_id: int | None = Field(default=None, ge=1, description="Item of the job that scored it, if a job did.")
    verdicts: tuple[Verdict, ...] = Field(default=(), description="Verdicts, where no job has them.")


class RolloutGroup(Value):
    """The rollouts of one prompt in a step, and the rubric version that they were scored by."""

    prompt: Prompt = Field(description="The prompt.")
    rubric: Rubric = Field(description="The rubric.")
    rollouts: tuple[Rollout, ...] = Field(min_length=1, description="Its completions.")


TEXT_METRICS = ("scored_by", "std_floor_origin")
"""The metrics that are texts; readers compute with all others."""
LARGEST_METRIC = 1e100
"""Squares of metrics are finite."""


def _computable(metrics: dict[str, JsonValue]) -> dict[str, JsonValue]:
    for name, value in metrics.items():
        is_number = isinstance(value, int | float) and abs(value) <= LARGEST_METRIC
        is_text = isinstance(value, str) and name in TEXT_METRICS
        if not (value is None or is_number or is_text):
            raise ValueError(f"{name}: expected a number or null, found {describe(value)}; texts belong into `config`")
    return metrics


class RunStep(Value):
    """A training step: its metrics and its rollouts. Recording it again replaces it."""

    step: int = Field(ge=1, description="Number of the step, from 1.")
    metrics: Annotated[dict[str, JsonValue], AfterValidator(_computable)] = Field(description="Metrics by name.")
    groups: tuple[RolloutGroup, ...] = Field(default=(), description="Rollouts, in the order of the batch.")


class RunHeartbeat(Value):
    """A sign of life of a trainer, with its new state if that has changed."""

    state: RunState | None = Field(default=None, description="New state.")
    reason: Text | None = Field(default=None, description="Why the run is paused, or has stopped or failed.")


class StoredRun(Value):
    """A training run on record."""

    id: int = Field(description="Id of the run.")
    created_at: datetime = Field(description="Time at which it was started.")
    finished_at: datetime | None = Field(description="Time at which it ended.")
    name: str = Field(description="Name of the run.")
    status: RunStatus = Field(description="State; `lost` if it is running or paused and its trainer is silent.")
    reason: str | None = Field(description="Why it is paused, or has stopped or failed.")
    stop_requested: bool = Field(description="Whether it was asked to stop after its current step.")
    seen_seconds: float = Field(description="Seconds since its trainer last reported.")
    host: str = Field(description="Machine of the trainer.")
    folder: str = Field(description="Folder of the run on that machine.")
    judge: str | None = Field(description="Name of the judge.")
    judge_id: int | None = Field(description="Id of the judge, if it is stored.")
    steps: int = Field(description="Steps on record.")
    steps_total: int = Field(description="Number of steps that the run is to have.")
    metrics: dict[str, Any] | None = Field(description="Metrics of the newest step.")
    rollouts: int | None = Field(default=None, description="Rollouts on record; null in lists.")
    unscored: int | None = Field(default=None, description="Those without a reward; null in lists.")
    reward_first: float | None = Field(default=None, description="Mean reward of the first tenth of the steps.")
    reward_last: float | None = Field(default=None, description="Mean reward of the last tenth of the steps.")
    config: dict[str, Any] | None = Field(default=None, description="Configuration; null in lists.")

    @property
    def is_live(self) -> bool:
        """Whether its trainer works on it, or waits."""
        return self.status in ("running", "paused")


class StoredStep(Value):
    """The metrics of a step on record."""

    step: int = Field(description="Number of the step, from 1.")
    created_at: datetime = Field(description="Time at which it was recorded.")
    metrics: dict[str, Any] = Field(description="Metrics by name; null is a missing number.")


class StoredRollout(Value):
    """A rollout on record."""

    id: int = Field(description="Id of the rollout.")
    step: int = Field(description="Number of the step, from 1.")
    place: int = Field(description="Place in the batch, from 0.")
    prompt_id: int = Field(description="Id of the prompt.")
    completion_id: int = Field(description="Id of the completion.")
    rubric_id: int = Field(description="Id of the rubric version.")
    rubric: str = Field(description="Rubric version, as name@version.")
    judge_id: int | None = Field(description="Id of the judge, if it is stored.")
    item_id: int | None = Field(description="Item of the job that scored it, if a job did.")
    reward: float | None = Field(description="Reward; null if too little was judged.")
    null_reason: str | None = Field(description="Why there is no reward.")
    advantage: float | None = Field(description="Advantage within the group.")
    tokens: int = Field(description="Tokens of the completion.")
    truncated: bool = Field(description="Whether it was cut off at the maximum of tokens.")
    logprob_sum: float | None = Field(description="Sum of its tokens' log-probabilities in nats.")
    verdicts: tuple[Verdict, ...] = Field(default=(), description="Verdicts, by criterion.")
