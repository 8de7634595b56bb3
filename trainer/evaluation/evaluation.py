"""The evaluations of a run: when, what was recorded, and the best checkpoint.

``out/eval.jsonl`` has a line for each evaluation, ``out/eval/step-000050.jsonl`` its completions, and
``out/best/step-000050/`` the policy with the highest gold score, if one is above that of the starting policy.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rubricsvc.core import strict_json
from rubricsvc.errors import ConflictError
from trainer import checkpoint
from trainer.evaluation.evaluator import EvalCompletion, Evaluated, Evaluator, prompt_table
from trainer.files import replace_text
from trainer.metrics import History, Metrics
from trainer.policy import Policy

LINES = "eval.jsonl"


class Evaluation:
    """Evaluates the policies of a run: the starting one, those after every ``eval.every`` steps, and the last.

    Args:
        evaluator: What samples and scores.
        out: Folder of the run; None records in memory only.
        steps: Number of steps of the run.
    """

    def __init__(self, evaluator: Evaluator, out: Path | None, steps: int) -> None:
        self.evaluator = evaluator
        self._out = out
        self._steps = steps
        self._history = History(None)

    @property
    def lines(self) -> list[Metrics]:
        """The evaluations so far, by step."""
        return sorted(self._history.steps, key=lambda line: int(line["step"]))

    def begin(self, done: int) -> None:
        """Continue after ``done`` steps: the lines of later ones, which are repeated, are dropped.

        Raises:
            ConflictError: Earlier evaluations were of other prompts or settings.
        """
        self._history = History(self._out, done, LINES)
        for line in self.lines:
            if line["setup"] != self.evaluator.setup:
                raise ConflictError(
                    f"{self._out}/{LINES} has evaluations with other held-out prompts or other settings of [eval]",
                    hint="restore the settings, or choose another `out`; or delete the file to evaluate from here on",
                )

    def run(self, policy: Policy, step: int, name: str) -> Metrics | None:
        """Evaluate ``policy`` after ``step`` steps if that is due and was not done; return the line.

        Raises:
            UnavailableError: Too many completions have no score, or the best checkpoint cannot be written.
        """
        due = step == self._steps or step % self.evaluator.settings.every == 0
        if not due or any(line["step"] == step for line in self.lines):
            return None
        first = next((line for line in self.lines if line["step"] == 0), None)
        start = prompt_table(first) if first else None
        evaluated = self.evaluator.evaluate(policy, step, name=name, start=start)
        is_best = self._save_if_best(policy, step, evaluated)
        if self._out is not None:
            write_completions(self._out / "eval" / f"step-{step:06d}.jsonl", self.evaluator, evaluated.completions)
        return self._history.add(evaluated.line | {"best": is_best})

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


def save_best(out: Path, step: int, policy: Policy, state: dict[str, Any]) -> None:
    """Save the policy in ``out/best``; the one before is deleted once this one is complete and on disk.

    Raises:
        UnavailableError: It cannot be written. The one before is kept.
    """
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


def write_completions(path: Path, evaluator: Evaluator, completions: list[EvalCompletion]) -> None:
    """Write a line for each completion of an evaluation."""

    def lines() -> Iterator[dict[str, Any]]:
        for one in completions:
            task = evaluator.tasks[one.prompt]
            yield {
                "prompt": task.name or task.prompt.digest[:12],
                "prompt_digest": task.prompt.digest,
                "prompt_text": task.prompt.text,
                "greedy": one.greedy,
                "text": one.completion.text,
                "truncated": one.completion.sampling["truncated"],
                "tokens": one.tokens,
                "rewards": one.rewards,
            }

    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, "".join(f"{strict_json.dump(line)}\n" for line in lines()))
