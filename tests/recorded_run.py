"""A training run to record: two prompts, each with two completions a step."""

from typing import Any

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.schemas.runs import (
    EvaluationCompletion,
    EvaluationGroup,
    EvaluationReward,
    NewRun,
    Rollout,
    RolloutGroup,
    RunEvaluation,
    RunStep,
)

PROMPTS = (Prompt.of("What is one?"), Prompt.of("What is two?"))
RUBRIC = Rubric(criteria=(Criterion(key="right", text="It is right."),))


def new_run(key: str = "first-1", **fields: Any) -> NewRun:
    given = {"key": key, "name": "first", "steps_total": 9, "config": {"steps": 9}, "folder": "/runs/first", **fields}
    return NewRun.model_validate(given)


def rollout(text: str, reward: float | None = 0.5, **fields: Any) -> Rollout:
    completion = Completion(text=text, policy="tiny", step=0, sampling={"temperature": 1.0, "truncated": False})
    reason = None if reward is not None else "timeout"
    verdicts = (Verdict.scored("right", reward),) if reward is not None else ()
    given = {"advantage": 0.0, "tokens": len(text), "logprob_sum": -1.5, "verdicts": verdicts, **fields}
    return Rollout.model_validate({"completion": completion, "reward": reward, "null_reason": reason, **given})


def run_step(step: int, word: str = "text", reward: float | None = 0.5, **metrics: Any) -> RunStep:
    groups = tuple(
        RolloutGroup(
            prompt=prompt,
            rubric=RUBRIC,
            rollouts=(rollout(f"{word} {step}.{at}.0", reward), rollout(f"{word} {step}.{at}.1", None)),
        )
        for at, prompt in enumerate(PROMPTS)
    )
    return RunStep(step=step, metrics={"step": step, "reward": reward, **metrics}, groups=groups)


def run_evaluation(step: int, name: str = "step", word: str = "eval", **fields: Any) -> RunEvaluation:
    """A sampled completion of each prompt, scored by the training reward and by "gold"; and one without a score."""

    def completion(text: str, reward: float | None, *, greedy: bool) -> EvaluationCompletion:
        reason = None if reward is not None else "timeout"
        verdicts = (Verdict.scored("right", reward),) if reward is not None else ()
        rewards = (
            EvaluationReward(score="reward", reward=reward, null_reason=reason, verdicts=verdicts),
            EvaluationReward(score="gold", reward=0.25),
        )
        value = Completion(text=text, policy="tiny", step=step, sampling={"temperature": 0.0 if greedy else 1.0})
        return EvaluationCompletion(
            completion=value, greedy=greedy, tokens=len(text), truncated=greedy, rewards=rewards
        )

    groups = tuple(
        EvaluationGroup(
            prompt=prompt,
            rubric=RUBRIC,
            completions=(
                completion(f"{word} {step}.{at}", 0.75, greedy=False),
                completion(f"{word} {step}.{at} greedy", None, greedy=True),
            ),
        )
        for at, prompt in enumerate(PROMPTS)
    )
    return RunEvaluation.model_validate(
        {"name": name, "step": step, "line": evaluation_line(step), "groups": groups, **fields}
    )


def evaluation_line(step: int) -> dict[str, Any]:
    mean = {"value": 0.75, "low": None, "high": None}
    scores = {"reward": {"mean": mean, "unscored_fraction": 0.5}, "gold": {"mean": mean, "unscored_fraction": 0.0}}
    values = {"reward": {"mean": [0.75, 0.75]}, "gold": {"mean": [0.25, 0.25]}}
    line = {"step": step, "policy": "tiny", "gold": "gold", "scores": scores, "values": values, "setup": "one"}
    return line | {"prompts": 2}
