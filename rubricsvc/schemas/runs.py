"""Training runs: what a trainer reports, what is on record, and what reports and comparisons make of it."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, Field, JsonValue, ValidationError, model_validator

from rubricsvc.core.base import Name, Text, Title, Value
from rubricsvc.core.prompt import Completion, Message, Prompt
from rubricsvc.core.rubric import Rubric, reject_duplicates
from rubricsvc.core.states import RunState, RunStatus
from rubricsvc.core.validation_messages import describe, first_error
from rubricsvc.core.verdict import Verdict
from rubricsvc.schemas.base import Wire


class NewRun(Value):
    """A training run that starts, or goes on after ``done`` steps."""

    key: Name = Field(min_length=1, description="Identity of the run, kept in its folder: the same key, the same run.")
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


class Rewarded(Value):
    """What a completion was rewarded with."""

    reward: float | None = Field(description="Reward; null if too little was judged.")
    null_reason: Text | None = Field(default=None, description="Why there is no reward.")
    item_id: int | None = Field(default=None, ge=1, description="Item of the job that scored it, if a job did.")
    verdicts: tuple[Verdict, ...] = Field((), description="Verdicts by criterion; a trainer leaves a job's out.")


class Sampled(Value):
    """How long a completion of a policy is."""

    tokens: int = Field(ge=0, description="Tokens of the completion.")
    truncated: bool = Field(default=False, description="Whether it was cut off at the maximum of tokens.")


class OnRecord(Wire):
    """Where a completion of a policy is stored, with its prompt and rubric."""

    id: int = Field(description="Id of this row.")
    place: int = Field(description="Place in the batch or the evaluation, from 0.")
    prompt_id: int = Field(description="Id of the prompt.")
    completion_id: int = Field(description="Id of the completion.")
    rubric_id: int = Field(description="Id of the rubric version.")
    rubric: str = Field(description="Rubric version, as name@version.")


class Learned(Rewarded, Sampled):
    """What a training step made of a completion."""

    advantage: float | None = Field(default=None, description="Advantage within the group; null without a reward.")
    logprob_sum: float | None = Field(
        default=None, description="Sum of its tokens' log-probabilities in nats, under the policy that sampled it."
    )


class Rollout(Learned):
    """A completion that a policy sampled in a training step, with its reward."""

    completion: Completion = Field(description="The completion.")


class PromptGroup(Value):
    """What a policy sampled for one prompt, and the rubric version that it was scored by."""

    prompt: Prompt = Field(description="The prompt.")
    prompt_name: Name = Field(default="", description="External id of the prompt, if it is new.")
    rubric: Rubric = Field(description="The rubric.")
    rubric_name: Name = Field(default="", description="Name of the rubric, if both are new.")


class RolloutGroup(PromptGroup):
    """The rollouts of one prompt in a step."""

    rollouts: tuple[Rollout, ...] = Field(min_length=1, description="Its completions.")


TEXT_METRICS = ("scored_by", "std_floor_origin")  # the metrics that are texts; readers compute with all others
LARGEST_METRIC = 1e100  # squares of metrics are finite


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


class StoredRun(Wire):
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


class StoredStep(Wire):
    """The metrics of a step on record."""

    step: int = Field(description="Number of the step, from 1.")
    created_at: datetime = Field(description="Time at which it was recorded.")
    metrics: dict[str, Any] = Field(description="Metrics by name; null is a missing number.")


class StoredRollout(Learned, OnRecord):
    """A rollout on record."""

    step: int = Field(description="Number of the step, from 1.")
    judge_id: int | None = Field(description="Id of the judge, if it is stored.")


STEP = "step"  # the name of an evaluation of the policy that the run trains
BEFORE = "before_demonstrations"  # the evaluation of the untouched policy, in a run that begins with demonstrations
EQUAL_COMPUTE = ("start", "best_of_n", "best_of_n_supervised")
"""Baselines at equal compute: the starting policy, the best of its samples, and the policy that learned these."""
OF_TOOLS = ("without_tools", "empty_results", "script")
"""Baselines of a run in an environment: the trained policy without tools, and with tools that find nothing; and a
script without a model.
"""
OTHER = ("other_start", "other")  # the starting and the trained policy on other prompts, in another collection
BASELINES = (BEFORE, *EQUAL_COMPUTE, *OF_TOOLS, *OTHER)
"""The names of the evaluations of baselines, in the order of a report."""
REWARD = "reward"  # the score that the policy is trained with

Line = TypeVar("Line", bound=Mapping[str, object])
"""An evaluation, as its line in `eval.jsonl`."""
MEASURES = ("behaviour", "criteria")
"""The entries of an evaluation with estimates beside the scores: of calls and citations, and of each criterion."""


def column_of(line: Mapping[str, Any]) -> str:
    """Return what an evaluation is called beside others."""
    return str(line.get("baseline") or f"step {line['step']}").replace("_", " ")


def result_of(lines: Sequence[Line]) -> Line:
    """Return the evaluation that is the result of a run, of one or more by step: that of its best checkpoint.

    It is the newest one whose gold score was above all before it, which `best/` holds: a run that goes on and falls is
    judged by what it keeps. Where none was above the start, it is the last one. Other trainers' lines have no ``best``,
    so that theirs is the last one, too.
    """
    for line in reversed(lines):
        if line.get("best") and line["step"]:
            return line
    return lines[-1]


def measures_beside(lines: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[tuple[str, list[Any]]]]:
    """Return what evaluations are called, and their measures by name, with the estimate in each or None.

    That of the untouched policy is the first one, then come those of the run, then its other baselines.
    """
    ordered = sorted(lines, key=lambda line: ("baseline" in line) - 2 * (line.get("baseline") == BEFORE))
    names = dict.fromkeys((kind, name) for kind in MEASURES for line in ordered for name in line.get(kind, {}))
    rows = [(name, [line.get(kind, {}).get(name) for line in ordered]) for kind, name in names]
    return [column_of(line) for line in ordered], rows


class EvaluationReward(Rewarded):
    """The reward of a completion by one score of an evaluation."""

    score: Name = Field(min_length=1, description="Score: `reward` (of the training), a judge's name, or `checks`.")


class EvaluationCompletion(Sampled):
    """A completion of a held-out prompt, with its rewards."""

    completion: Completion = Field(description="The completion.")
    greedy: bool = Field(default=False, description="Whether it was decoded greedily, not sampled.")
    rewards: tuple[EvaluationReward, ...] = Field(default=(), description="Rewards, one for each score.")

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        reject_duplicates("score", [each.score for each in self.rewards])
        return self


class EvaluationGroup(PromptGroup):
    """The completions of one held-out prompt."""

    completions: tuple[EvaluationCompletion, ...] = Field(min_length=1, description="Its completions.")


class _Mean(BaseModel):
    value: float | None
    low: float | None
    high: float | None


class _Score(BaseModel):
    mean: _Mean
    unscored_fraction: float | None


class _Values(BaseModel):
    mean: list[float | None]


class _Line(BaseModel):
    """What reports read of the line of any evaluation; it has more."""

    step: int
    policy: str
    setup: str
    gold: str
    prompts: int
    scores: dict[str, _Score]
    values: dict[str, _Values]
    monitors: dict[str, list[float | None]] = Field(default_factory=dict)


def _readable(line: dict[str, JsonValue]) -> dict[str, JsonValue]:
    try:
        read = _Line.model_validate(line)
    except ValidationError as error:
        raise ValueError(": ".join(filter(None, first_error(error)))) from None
    if read.gold not in read.scores.keys() & read.values.keys():
        raise ValueError(f"gold names the score {read.gold!r}, which is not in both scores and values")
    return line


class RunEvaluation(Value):
    """An evaluation of a run. Recording it again replaces it: the one of its step, or of its baseline."""

    name: Name = Field(default=STEP, min_length=1, description="`step`, or the name of a baseline.")
    step: int = Field(ge=0, description="Training steps of the policy.")
    line: Annotated[dict[str, JsonValue], AfterValidator(_readable)] = Field(
        description="Estimates, and the values of each prompt, as in `eval.jsonl`."
    )
    groups: tuple[EvaluationGroup, ...] = Field(default=(), description="Completions by held-out prompt.")


class StoredEvaluation(Wire):
    """An evaluation on record."""

    id: int = Field(description="Id of the evaluation.")
    created_at: datetime = Field(description="Time at which it was recorded.")
    name: str = Field(description="`step`, or the name of a baseline.")
    step: int = Field(description="Training steps of the policy.")
    line: dict[str, Any] = Field(description="Estimates, and the values of each prompt; null is a missing number.")


class StoredEvaluationReward(EvaluationReward, Wire):
    """A reward of a completion on record."""

    judge_id: int | None = Field(description="Id of the judge, if it is stored.")


class StoredEvaluationCompletion(Sampled, OnRecord):
    """A completion of an evaluation on record."""

    evaluation_id: int = Field(description="Id of the evaluation.")
    greedy: bool = Field(description="Whether it was decoded greedily, not sampled.")
    rewards: tuple[StoredEvaluationReward, ...] = Field(description="Rewards, one for each score.")


class Sample(Value):
    """A completion in a report. ``scores`` are by name: the training reward, and those of the evaluation.

    ``verdicts`` are those of the training reward, ``evaluation_row`` is its row in the store, where it has one, and
    ``messages`` is the trajectory of an episode in an environment.
    """

    prompt: str
    text: str
    where: str
    scores: dict[str, float | None]
    truncated: bool = False
    greedy: bool = False
    verdicts: tuple[Verdict, ...] = ()
    evaluation_row: int | None = None
    messages: tuple[Message, ...] = ()


class Alarm(Value):
    """A reason to distrust a run: in ``step``, if it is of one, of whose rollouts those with ``sign`` are examples.

    A sign is one of `trainer.monitors.measures.sign`. The alarm of a monitor has its ``metric``.
    """

    text: str
    step: int | None = None
    sign: str | None = None
    metric: str | None = None
    examples: tuple[Sample, ...] = ()


class RunReport(Value):
    """A training run: its record, metrics by step, evaluations and baselines, and completions.

    ``samples`` are those of the evaluations, by their names in ``columns``: for each prompt the completion of each.
    """

    name: str
    config: dict[str, Any]
    steps: tuple[dict[str, Any], ...]
    evaluations: tuple[dict[str, Any], ...] = ()
    baselines: tuple[dict[str, Any], ...] = ()
    highest: tuple[Sample, ...] = ()
    widest: tuple[Sample, ...] = ()
    columns: tuple[str, ...] = ()
    samples: dict[str, dict[str, Sample]] = Field(default_factory=dict)
    alarms: tuple[Alarm, ...] = ()
    status: str = ""


def flat(config: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of a configuration by their paths; those without a value are left out."""
    for name, value in config.items():
        key = f"{path}.{name}" if path else name
        if isinstance(value, Sequence) and value and all(isinstance(one, Mapping) for one in value):
            value = {str(number): one for number, one in enumerate(value)}  # noqa: PLW2901
        if isinstance(value, Mapping):
            yield from flat(value, key)
        elif value not in (None, [], ()):
            yield key, value
