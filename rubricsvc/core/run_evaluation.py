"""Evaluations of a training run on record: of its policy after a step, and of its baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, JsonValue, ValidationError, model_validator

from rubricsvc.core.base import Name, Text, Value
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric, reject_duplicates
from rubricsvc.core.validation_messages import first_error
from rubricsvc.core.verdict import Verdict

STEP = "step"
"""The name of an evaluation of the policy that the run trains."""
BEFORE = "before_demonstrations"
"""The evaluation of the untouched policy, in a run that begins with demonstrations."""
EQUAL_COMPUTE = ("start", "best_of_n", "best_of_n_supervised")
"""Baselines at equal compute: the starting policy, the best of its samples, and the policy that learned these."""
OF_TOOLS = ("without_tools", "empty_results", "script")
"""Baselines of a run in an environment: the trained policy without tools, and with tools that find nothing; and a
script without a model.
"""
OTHER = ("other_start", "other")
"""The starting and the trained policy on other prompts, in another collection."""
BASELINES = (BEFORE, *EQUAL_COMPUTE, *OF_TOOLS, *OTHER)
"""The names of the evaluations of baselines, in the order of a report."""
REWARD = "reward"
"""The score that the policy is trained with."""


MEASURES = ("behaviour", "criteria")
"""The entries of an evaluation with estimates beside the scores: of calls and citations, and of each criterion."""


def column_of(line: Mapping[str, Any]) -> str:
    """Return what an evaluation is called beside others."""
    return str(line.get("baseline") or f"step {line['step']}").replace("_", " ")


def in_order(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return evaluations with that of the untouched policy first, then those of the run, then its other baselines."""
    return sorted(lines, key=lambda line: ("baseline" in line) - 2 * (line.get("baseline") == BEFORE))


def measure_rows(lines: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Any]]]:
    """Return the measures by name, each with its estimate in each evaluation, None where there is none."""
    names = dict.fromkeys((kind, name) for kind in MEASURES for line in lines for name in line.get(kind, {}))
    return [(name, [line.get(kind, {}).get(name) for line in lines]) for kind, name in names]


class EvaluationReward(Value):
    """The reward of a completion by one score of an evaluation."""

    score: Name = Field(min_length=1, description="Score: `reward` (of the training), a judge's name, or `checks`.")
    reward: float | None = Field(description="Reward; null if too little was judged.")
    null_reason: Text | None = Field(default=None, description="Why there is no reward.")
    item_id: int | None = Field(default=None, ge=1, description="Item of the job that scored it, if a job did.")
    verdicts: tuple[Verdict, ...] = Field(default=(), description="Verdicts, where no job has them.")


class EvaluationCompletion(Value):
    """A completion of a held-out prompt, with its rewards."""

    completion: Completion = Field(description="The completion.")
    greedy: bool = Field(default=False, description="Whether it was decoded greedily, not sampled.")
    tokens: int = Field(ge=0, description="Tokens of the completion.")
    truncated: bool = Field(default=False, description="Whether it was cut off at the maximum of tokens.")
    rewards: tuple[EvaluationReward, ...] = Field(default=(), description="Rewards, one for each score.")

    @model_validator(mode="after")
    def _distinct(self) -> EvaluationCompletion:
        reject_duplicates("score", [each.score for each in self.rewards])
        return self


class EvaluationGroup(Value):
    """The completions of one held-out prompt, and the rubric version that they were scored by."""

    prompt: Prompt = Field(description="The prompt.")
    rubric: Rubric = Field(description="The rubric.")
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

    @model_validator(mode="after")
    def _has_gold(self) -> _Line:
        if self.gold not in self.scores.keys() & self.values.keys():
            raise ValueError(f"gold names the score {self.gold!r}, which is not in both scores and values")
        return self


def _readable(line: dict[str, JsonValue]) -> dict[str, JsonValue]:
    try:
        _Line.model_validate(line)
    except ValidationError as error:
        raise ValueError(": ".join(filter(None, first_error(error)))) from None
    return line


class RunEvaluation(Value):
    """An evaluation of a run. Recording it again replaces it: the one of its step, or of its baseline."""

    name: Name = Field(default=STEP, min_length=1, description="`step`, or the name of a baseline.")
    step: int = Field(ge=0, description="Training steps of the policy.")
    line: Annotated[dict[str, JsonValue], AfterValidator(_readable)] = Field(
        description="Estimates, and the values of each prompt, as in `eval.jsonl`."
    )
    groups: tuple[EvaluationGroup, ...] = Field(default=(), description="Completions by held-out prompt.")


class StoredEvaluation(Value):
    """An evaluation on record."""

    id: int = Field(description="Id of the evaluation.")
    created_at: datetime = Field(description="Time at which it was recorded.")
    name: str = Field(description="`step`, or the name of a baseline.")
    step: int = Field(description="Training steps of the policy.")
    line: dict[str, Any] = Field(description="Estimates, and the values of each prompt; null is a missing number.")


class StoredEvaluationReward(Value):
    """A reward of a completion on record."""

    score: str = Field(description="Score: `reward` (of the training), a judge's name, or `checks`.")
    reward: float | None = Field(description="Reward; null if too little was judged.")
    null_reason: str | None = Field(description="Why there is no reward.")
    judge_id: int | None = Field(description="Id of the judge, if it is stored.")
    item_id: int | None = Field(description="Item of the job that scored it, if a job did.")
    verdicts: tuple[Verdict, ...] = Field(default=(), description="Verdicts, by criterion.")


class StoredEvaluationCompletion(Value):
    """A completion of an evaluation on record."""

    id: int = Field(description="Id of this row.")
    evaluation_id: int = Field(description="Id of the evaluation.")
    place: int = Field(description="Place in the evaluation, from 0.")
    prompt_id: int = Field(description="Id of the prompt.")
    completion_id: int = Field(description="Id of the completion.")
    rubric_id: int = Field(description="Id of the rubric version.")
    rubric: str = Field(description="Rubric version, as name@version.")
    greedy: bool = Field(description="Whether it was decoded greedily, not sampled.")
    tokens: int = Field(description="Tokens of the completion.")
    truncated: bool = Field(description="Whether it was cut off at the maximum of tokens.")
    rewards: tuple[StoredEvaluationReward, ...] = Field(description="Rewards, one for each score.")
