"""Baselines at equal compute: what a run has to beat on its held-out prompts.

- ``start``: the untouched policy.
- ``best_of_n``: of n samples of the untouched policy the best by the training reward, n the run's group size. It pays
  at every use what training pays once.
- ``best_of_n_supervised``: the policy after supervised learning of the best of each group, with as many samples of the
  untouched policy, judged as often, by the same optimiser in as many steps (`trainer.algorithms.supervised`).

``out/baselines/evaluations.jsonl`` has a line for each, ``out/baselines/best-of-n-supervised`` is a separate run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from rubricsvc.core.run_evaluation import BASELINES, RunEvaluation
from rubricsvc.errors import InvalidError
from trainer import checkpoint
from trainer.config import TrainConfig
from trainer.data.tasks import Task
from trainer.evaluation.completions import record_of, record_of_file, write_completions
from trainer.evaluation.evaluation import LINES, Evaluation, completions_file
from trainer.evaluation.evaluator import Evaluator, prompt_table
from trainer.files import replace_text
from trainer.history import Metrics, line_of, read
from trainer.loop import train
from trainer.policies.policy import Policy
from trainer.recording.recorder import EvaluationKey, EvaluationRecorder, RunStore, evaluations_on_record
from trainer.rewards.outages import StopRequested
from trainer.rewards.source import RewardSource

log = logging.getLogger(__name__)

FOLDER = "baselines"
FILE = "evaluations.jsonl"
_TRAINED = "best-of-n-supervised"
START, BEST_OF_N, SUPERVISED = BASELINES

Config = TypeVar("Config", bound=TrainConfig)


def read_baselines(out: Path) -> list[Metrics]:
    """Return the evaluations of a run's baselines; empty before they are run."""
    return read(out / FOLDER, FILE)


def run_baselines(
    config: TrainConfig,
    load: Callable[[], Policy],
    tasks: Sequence[Task],
    rewards: RewardSource,
    evaluator: Evaluator,
    *,
    on_step: Callable[[Metrics], None] | None = None,
    stop: Event | None = None,
    record: Mapping[str, Any] | None = None,
    recorder: EvaluationRecorder | None = None,
) -> list[Metrics] | None:
    """Run the baselines that are missing, and return their evaluations; None if it was stopped.

    Args:
        config: Settings of the run, with ``out``.
        load: Returns the untouched policy.
        tasks: The prompts to train on.
        rewards: The training reward.
        evaluator: The run's.
        on_step: Called with the metrics of each step of the supervised baseline.
        stop: When set, the supervised baseline ends after the current step, and goes on when it is run again.
        record: Plain data for the ``config.json`` of the supervised baseline.
        recorder: Records the baselines as evaluations of the run, also earlier ones that are not on record.

    Raises:
        UnavailableError: Too many completions have no reward; run it again.
        InvalidError: The run has no folder.
    """
    if config.out is None:
        raise InvalidError("baselines need the folder of the run", hint="set `out`", path="out")
    out, folder, setup = config.out, config.out / FOLDER, evaluator.setup
    kept = {line["baseline"]: line for line in read(folder, FILE) if line["setup"] == setup}
    _record_kept(out, evaluator, kept, recorder)
    try:
        _evaluate_untrained(config.sampling.group_size, out, load, evaluator, kept=kept, recorder=recorder)
    except StopRequested:
        return None
    supervised = supervised_config(config, folder)
    if kept.get(SUPERVISED, {}).get("step") != config.steps:
        trained = folder / _TRAINED
        _copy_start(trained, kept[START])
        options: dict[str, Any] = {"on_step": on_step, "stop": stop, "record": record}
        last = _LastEvaluation(config.steps, recorder) if recorder is not None else None
        evaluation = Evaluation(evaluator, trained, config.steps, last)
        resume = checkpoint.has_run(trained)
        history = train(load(), tasks, rewards, supervised, evaluation=evaluation, resume=resume, **options)
        if history.stopped:
            return None
        kept[SUPERVISED] = history.evaluations[-1]
        _write(folder, kept)
    return read_baselines(out)


def _evaluate_untrained(
    n: int,
    out: Path,
    load: Callable[[], Policy],
    evaluator: Evaluator,
    *,
    kept: dict[str, Metrics],
    recorder: EvaluationRecorder | None,
) -> None:
    """Add the evaluations of the untouched policy and of best-of-n, where they are missing."""
    folder = out / FOLDER
    if START not in kept:
        known = [line for line in read(out, LINES) if line["step"] == 0 and line["setup"] == evaluator.setup]
        if known and recorder is not None:
            recorder.evaluation(record_of_file(evaluator, known[0], completions_file(out, 0), START))
        kept[START] = known[0] if known else _evaluated(evaluator, load(), folder / START, recorder)
        _write(folder, kept)
    if BEST_OF_N not in kept:
        kept[BEST_OF_N] = _evaluated(evaluator, load(), folder / BEST_OF_N, recorder, best_of=n, start=kept[START])
        _write(folder, kept)


def _record_kept(
    out: Path, evaluator: Evaluator, kept: Mapping[str, Metrics], recorder: EvaluationRecorder | None
) -> None:
    """Record the baselines that were evaluated, and are not on record."""
    known = recorder.recorded_evaluations() if recorder is not None and kept else None
    if recorder is None or known is None:
        return
    own = out / FOLDER / f"{START}.jsonl"
    for name, line in kept.items():
        if (name, line["step"], line["setup"]) not in known:
            paths = {
                START: own if own.is_file() else completions_file(out, 0),
                BEST_OF_N: out / FOLDER / f"{BEST_OF_N}.jsonl",
                SUPERVISED: completions_file(out / FOLDER / _TRAINED, line["step"]),
            }
            recorder.evaluation(record_of_file(evaluator, line, paths[name], name))


def supervised_config(config: Config, folder: Path) -> Config:
    """Return the settings of the supervised baseline of a run."""
    changes = {"algorithm": SUPERVISED, "out": folder / _TRAINED, "evolve": None}
    return config.model_copy(update=changes)


def _evaluated(
    evaluator: Evaluator,
    policy: Policy,
    path: Path,
    recorder: EvaluationRecorder | None,
    *,
    best_of: int = 1,
    start: Metrics | None = None,
) -> Metrics:
    before = prompt_table(start) if start else None
    found = evaluator.evaluate(policy, 0, best_of=best_of, start=before)
    write_completions(path.with_suffix(".jsonl"), evaluator, found.completions)
    if recorder is not None:
        recorder.evaluation(record_of(evaluator, found, path.name))
    return found.line


def _copy_start(trained: Path, start: Metrics) -> None:
    """Give a run the evaluation of its starting policy, where it has none."""
    if not read(trained, LINES):
        trained.mkdir(parents=True, exist_ok=True)
        line = {name: value for name, value in start.items() if name != "baseline"}
        replace_text(trained / LINES, line_of(line))


def _write(folder: Path, lines: Mapping[str, Metrics]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    named = ({**lines[name], "baseline": name} for name in BASELINES if name in lines)
    replace_text(folder / FILE, "".join(map(line_of, named)))


class _LastEvaluation:
    """Records the last evaluation of the supervised baseline's own run as that of the baseline."""

    def __init__(self, steps: int, recorder: EvaluationRecorder) -> None:
        self._steps, self._recorder = steps, recorder

    def evaluation(self, evaluation: RunEvaluation) -> None:
        if evaluation.step == self._steps:
            line = {**evaluation.line, "baseline": SUPERVISED}
            self._recorder.evaluation(evaluation.model_copy(update={"name": SUPERVISED, "line": line}))

    def recorded_evaluations(self) -> set[EvaluationKey] | None:
        return None


class BaselineRecorder:
    """Records the baselines of a run that this process does not train, so that it is not continued.

    What cannot be recorded is recorded when the baselines are run again.

    Args:
        store: Where the run is recorded.
        key: The run's identity.
    """

    def __init__(self, store: RunStore, key: str) -> None:
        self._store, self._key = store, key

    def evaluation(self, evaluation: RunEvaluation) -> None:
        """Record the evaluation of a baseline."""
        try:
            if (run_id := self._run_id()) is not None:
                self._store.record_evaluation(run_id, evaluation)
        except Exception as error:  # noqa: BLE001 - whatever it is, the baselines go on
            log.warning("baseline %s is not recorded; to record it, run the command again: %s", evaluation.name, error)

    def recorded_evaluations(self) -> set[EvaluationKey] | None:
        """Return what is on record; None if that is not known."""
        try:
            run_id = self._run_id()
            return None if run_id is None else evaluations_on_record(self._store, run_id)
        except Exception as error:  # noqa: BLE001 - as above
            log.warning("it is not known which baselines are on record: %s", error)
            return None

    def _run_id(self) -> int | None:
        found = next(iter(self._store.page(key=self._key)), None)
        if found is None:
            log.warning("the baselines are not recorded: no run on record has the key %r", self._key)
        return found.id if found is not None else None
