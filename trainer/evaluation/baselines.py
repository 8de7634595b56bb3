"""Baselines at equal compute: what a run has to beat on its held-out prompts.

- ``start``: the untouched policy.
- ``best_of_n``: of n samples of the untouched policy the best by the training reward, n the run's group size. It pays
  at every use what training pays once.
- ``best_of_n_supervised``: the policy after supervised learning of the best of each group, with as many samples of the
  untouched policy, judged as often, by the same optimiser in as many steps (`trainer.algorithms.supervised`).

``out/baselines/evaluations.jsonl`` has a line for each, ``out/baselines/best-of-n-supervised`` is a separate run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from rubricsvc.errors import InvalidError
from trainer import checkpoint
from trainer.config import TrainConfig
from trainer.evaluation.evaluation import LINES, Evaluation, write_completions
from trainer.evaluation.evaluator import Evaluator, prompt_table
from trainer.files import replace_text
from trainer.loop import train
from trainer.metrics import Metrics, line_of, read
from trainer.outages import StopRequested
from trainer.policy import Policy
from trainer.rewards import RewardSource, Task

FOLDER = "baselines"
FILE = "evaluations.jsonl"
START, BEST_OF_N, SUPERVISED = "start", "best_of_n", "best_of_n_supervised"

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

    Raises:
        UnavailableError: Too many completions have no reward; run it again.
        InvalidError: The run has no folder.
    """
    if config.out is None:
        raise InvalidError("baselines need the folder of the run", hint="set `out`", path="out")
    out, folder, setup = config.out, config.out / FOLDER, evaluator.setup
    kept = {line["baseline"]: line for line in read(folder, FILE) if line["setup"] == setup}
    try:
        _evaluate_untrained(config.sampling.group_size, out, load, evaluator, kept)
    except StopRequested:
        return None
    supervised = supervised_config(config, folder)
    if kept.get(SUPERVISED, {}).get("step") != config.steps:
        trained = folder / "best-of-n-supervised"
        _copy_start(trained, kept[START])
        options: dict[str, Any] = {"on_step": on_step, "stop": stop, "record": record}
        evaluation = Evaluation(evaluator, trained, config.steps)
        resume = checkpoint.has_run(trained)
        history = train(load(), tasks, rewards, supervised, evaluation=evaluation, resume=resume, **options)
        if history.stopped:
            return None
        kept[SUPERVISED] = history.evaluations[-1]
        _write(folder, kept)
    return read_baselines(out)


def _evaluate_untrained(
    n: int, out: Path, load: Callable[[], Policy], evaluator: Evaluator, kept: dict[str, Metrics]
) -> None:
    """Add the evaluations of the untouched policy and of best-of-n, where they are missing."""
    folder = out / FOLDER
    if START not in kept:
        known = [line for line in read(out, LINES) if line["step"] == 0 and line["setup"] == evaluator.setup]
        kept[START] = known[0] if known else _evaluated(evaluator, load(), folder / START)
        _write(folder, kept)
    if BEST_OF_N not in kept:
        kept[BEST_OF_N] = _evaluated(evaluator, load(), folder / BEST_OF_N, best_of=n, start=kept[START])
        _write(folder, kept)


def supervised_config(config: Config, folder: Path) -> Config:
    """Return the settings of the supervised baseline of a run."""
    changes = {"algorithm": SUPERVISED, "out": folder / "best-of-n-supervised", "evolve": None}
    return config.model_copy(update=changes)


def _evaluated(
    evaluator: Evaluator, policy: Policy, path: Path, *, best_of: int = 1, start: Metrics | None = None
) -> Metrics:
    before = prompt_table(start) if start else None
    found = evaluator.evaluate(policy, 0, best_of=best_of, start=before)
    write_completions(path.with_suffix(".jsonl"), evaluator, found.completions)
    return found.line


def _copy_start(trained: Path, start: Metrics) -> None:
    """Give a run the evaluation of its starting policy, where it has none."""
    if not read(trained, LINES):
        trained.mkdir(parents=True, exist_ok=True)
        line = {name: value for name, value in start.items() if name != "baseline"}
        replace_text(trained / LINES, line_of(line))


def _write(folder: Path, lines: Mapping[str, Metrics]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    named = ({**lines[name], "baseline": name} for name in (START, BEST_OF_N, SUPERVISED) if name in lines)
    replace_text(folder / FILE, "".join(map(line_of, named)))
