"""The evaluations of a run: when, what was recorded, and the best checkpoint.

``out/eval.jsonl`` has a line for each evaluation, ``out/eval/step-000050.jsonl`` its completions, and
``out/best/step-000050/`` the policy with the highest gold score, if one is above that of the starting policy.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rubricsvc.errors import ConflictError
from rubricsvc.schemas.runs import STEP
from trainer import checkpoint
from trainer.evaluation.completions import record_of, record_of_file, write_completions
from trainer.evaluation.evaluator import Evaluated, Evaluator, prompt_table
from trainer.history import History, Metrics
from trainer.policies.policy import Policy
from trainer.recording.leak_log import log_leaks
from trainer.recording.recorder import EvaluationRecorder

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
        """Continue after ``done`` steps: the lines of later ones, which are repeated, are dropped.

        Raises:
            ConflictError: Earlier evaluations were of other prompts or settings.
        """
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
    """Check that evaluations were of the held-out prompts and the settings with the digest ``setup``.

    Raises:
        ConflictError: One was of others.
    """
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
