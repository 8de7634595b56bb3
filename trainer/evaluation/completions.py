"""The completions of an evaluation: in a file of the run's folder, and in its record."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rubricsvc.core import strict_json
from rubricsvc.core.base import storable
from rubricsvc.core.prompt import Completion
from rubricsvc.schemas.runs import (
    STEP,
    EvaluationCompletion,
    EvaluationGroup,
    EvaluationReward,
    RunEvaluation,
)
from trainer.data.tasks import Task
from trainer.evaluation.evaluator import EvalCompletion, Evaluated, Evaluator
from trainer.files import replace_text
from trainer.history import Metrics
from trainer.rewards.source import ScoredRollout


def write_completions(path: Path, evaluator: Evaluator, completions: Sequence[EvalCompletion]) -> None:
    """Write a line for each completion of an evaluation."""

    def lines() -> Iterator[dict[str, Any]]:
        for one in completions:
            task = evaluator.tasks[one.prompt]
            yield {
                "prompt": _name(task),
                "prompt_digest": task.prompt.digest,
                "prompt_text": task.prompt.text,
                "rubric_digest": task.rubric.digest,
                "greedy": one.greedy,
                "text": one.completion.text,
                "truncated": one.completion.sampling["truncated"],
                "tokens": one.tokens,
                "sampling": one.completion.sampling,
                "messages": [message.model_dump(mode="json") for message in one.completion.messages],
                "rewards": one.rewards,
            }

    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, "".join(f"{strict_json.dump(line)}\n" for line in lines()))


def record_of(evaluator: Evaluator, evaluated: Evaluated, name: str = STEP) -> RunEvaluation:
    """Return an evaluation as it is recorded."""
    completions = [
        (
            one.prompt,
            EvaluationCompletion(
                completion=one.completion,
                greedy=one.greedy,
                tokens=one.tokens,
                truncated=bool(one.completion.sampling["truncated"]),
                rewards=tuple(_reward(score, result) for score, result in one.scored.items()),
            ),
        )
        for one in evaluated.completions
    ]
    return _record(evaluator.tasks, evaluated.line, completions, name)


def record_of_file(evaluator: Evaluator, line: Metrics, path: Path, name: str = STEP) -> RunEvaluation:
    """Return an evaluation as it is recorded, from its line and the file of its completions, without verdicts."""
    tasks = enumerate(evaluator.tasks)
    places = {(_name(task), task.prompt.digest, task.rubric.digest): place for place, task in tasks}
    completions = []
    for text in path.read_bytes().splitlines() if path.is_file() else ():
        row = json.loads(text)
        sampled = {
            "text": row["text"],
            "messages": row.get("messages", ()),
            "policy": line["policy"],
            "step": line["step"],
            "sampling": row.get("sampling", {"truncated": row["truncated"]}),
        }
        one = EvaluationCompletion(
            completion=Completion.model_validate(sampled),
            rewards=tuple(
                EvaluationReward(score=score, reward=reward, null_reason=None if reward is not None else "not known")
                for score, reward in row["rewards"].items()
            ),
            **{key: row[key] for key in ("greedy", "tokens", "truncated")},
        )
        completions.append((places[row["prompt"], row["prompt_digest"], row["rubric_digest"]], one))
    return _record(evaluator.tasks, line, completions, name)


def _record(
    tasks: Sequence[Task], line: Mapping[str, Any], completions: Sequence[tuple[int, EvaluationCompletion]], name: str
) -> RunEvaluation:
    groups = tuple(
        EvaluationGroup(
            prompt=tasks[place].prompt, rubric=tasks[place].rubric, completions=tuple(one for _, one in found)
        )
        for place, found in groupby(completions, key=lambda pair: pair[0])
    )
    named = line if name == STEP else {**line, "baseline": name}
    return RunEvaluation(name=name, step=line["step"], line=dict(named), groups=groups)


def _name(task: Task) -> str:
    return task.name or task.prompt.digest[:12]


def _reward(score: str, result: ScoredRollout) -> EvaluationReward:
    value = result.reward.value
    reason = None if value is not None else storable(result.reward.null_reason or "no reason given")
    verdicts = () if result.item_id is not None else result.verdicts
    return EvaluationReward(score=score, reward=value, null_reason=reason, item_id=result.item_id, verdicts=verdicts)
