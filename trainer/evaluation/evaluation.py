"""The evaluations of a run: when, what was recorded, and the best checkpoint.

``out/eval.jsonl`` has a line for each evaluation, ``out/eval/step-000050.jsonl`` its completions, and
``out/best/step-000050/`` the policy with the highest gold score, if one is above that of the starting policy.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rubricsvc.core import strict_json
from rubricsvc.core.base import storable
from rubricsvc.core.prompt import Completion
from rubricsvc.errors import ConflictError
from rubricsvc.schemas.runs import (
    STEP,
    EvaluationCompletion,
    EvaluationGroup,
    EvaluationReward,
    RunEvaluation,
)
from trainer import checkpoint
from trainer.data.tasks import Task
from trainer.environments.leaks import log_leaks
from trainer.evaluation.evaluator import EvalCompletion, Evaluated, Evaluator, prompt_table
from trainer.policies.policy import Policy
from trainer.recording import EvaluationRecorder, History, Metrics, replace_text
from trainer.rewards import ScoredRollout


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


LINES = "eval.jsonl"


class Evaluation:
    """Evaluates the policies of a run: the starting one, those after every ``eval.every`` steps, and the last.

    Args:
        evaluator: What samples and scores.
        out: Folder of the run; None records in memory only.
        steps: Number of steps of the run.
        recorder: Records the evaluations.
    """

    def __init__(
        self, evaluator: Evaluator, out: Path | None, steps: int, recorder: EvaluationRecorder | None = None
    ) -> None:
        self.evaluator = evaluator
        self._out = out
        self._steps = steps
        self._recorder = recorder
        self._history = History(None)

    @property
    def lines(self) -> list[Metrics]:
        """The evaluations so far, by step."""
        return sorted(self._history.steps, key=lambda line: int(line["step"]))

    def begin(self, done: int) -> None:
        """Continue after ``done`` steps: the lines of later ones, which are repeated, are dropped."""
        self._history = History(self._out, done, LINES)
        check_setup(self._out, self.lines, self.evaluator.setup)
        self._record_earlier()

    def _record_earlier(self) -> None:
        """Record the evaluations that the record lacks: those of a run that was not recorded, or elsewhere."""
        known = self._recorder.recorded_evaluations() if self._recorder is not None and self.lines else None
        if self._recorder is None or self._out is None or known is None:
            return
        for line in self.lines:
            if (STEP, line["step"], line["setup"]) not in known:
                path = completions_file(self._out, line["step"])
                self._recorder.evaluation(record_of_file(self.evaluator, line, path))

    def run(self, policy: Policy, step: int, name: str) -> Metrics | None:
        """Evaluate ``policy`` after ``step`` steps if that is due and was not done; return the line."""
        due = step == self._steps or step % self.evaluator.settings.every == 0
        if not due or any(line["step"] == step for line in self.lines):
            return None
        first = next((line for line in self.lines if line["step"] == 0), None)
        start = prompt_table(first) if first else None
        evaluated = self.evaluator.evaluate(policy, step, name=name, start=start)
        evaluated.line["best"] = self._save_if_best(policy, step, evaluated)
        if self._out is not None:
            write_completions(completions_file(self._out, step), self.evaluator, evaluated.completions)
            tasks = [self.evaluator.tasks[one.prompt] for one in evaluated.completions]
            log_leaks(self._out, tasks, [one.completion for one in evaluated.completions])
        if self._recorder is not None:  # before the line: a killed run repeats what has no line
            self._recorder.evaluation(record_of(self.evaluator, evaluated))
        return self._history.add(evaluated.line)

    def _save_if_best(self, policy: Policy, step: int, evaluated: Evaluated) -> bool:
        """Save the policy if its gold score is above those before; return whether it is."""
        name = self.evaluator.settings.gold_name
        saved = saved_best(self._out) if self._out is not None else None
        repeated = saved is not None and saved["step"] == step  # of a run that ended before the line was written
        known = [line["scores"][name]["mean"]["value"] for line in self.lines]
        known += [saved["value"]] if saved is not None and not repeated else []
        gold = evaluated.gold
        if gold is None or any(value is not None and value >= gold for value in known):
            return False
        if step and self._out is not None and not (repeated and saved is not None and saved["value"] == gold):
            estimate = evaluated.line["scores"][name]["mean"]
            save_best(self._out, step, policy, {"step": step, "gold": name, **estimate})
        return True


def check_setup(out: Path | None, lines: Iterable[Metrics], setup: str) -> None:
    """Check that evaluations were of the held-out prompts and the settings with the digest ``setup``."""
    if any(line["setup"] != setup for line in lines):
        raise ConflictError(
            f"{out}/{LINES} has evaluations with other held-out prompts or other settings of [eval]",
            hint="restore the settings, or choose another `out`; or delete the file to evaluate from here on",
            path="eval",
        )


def completions_file(out: Path, step: int) -> Path:
    """Return the path of the completions of a run's evaluation."""
    return out / "eval" / f"step-{step:06d}.jsonl"


def save_best(out: Path, step: int, policy: Policy, state: dict[str, Any]) -> None:
    """Save the policy in ``out/best``; the one before is deleted once this one is complete and on disk."""
    final = out / "best" / f"step-{step:06d}"
    with checkpoint.complete_folder(final) as part:
        policy.save(part / "model")
        (part / "state.json").write_text(json.dumps(state, indent=2), encoding="utf-8")
    for other in final.parent.glob("step-*"):
        if other != final:
            shutil.rmtree(other, ignore_errors=True)


def saved_best(out: Path) -> dict[str, Any] | None:
    """Return the record of the best checkpoint, with its ``folder``; None without one."""
    found = [
        {**json.loads((folder / "state.json").read_bytes()), "folder": str(folder)}
        for folder in sorted((out / "best").glob("step-*"))
    ]
    return max(found, key=lambda state: float(state["value"]), default=None)
