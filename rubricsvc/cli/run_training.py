"""Train a run from its configuration file: what `runs start`, `runs controls` and `runs sweep` share."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from rubricsvc.cli.output import INTERRUPTED, ProgressBar, cell, counted, echo, progress_bar
from rubricsvc.cli.run_baselines import baselines_of, check_prompts
from rubricsvc.cli.run_checks import FORCED, checks_of_judge, require_passed, stored_checks
from rubricsvc.cli.run_evaluation import evaluation_of, evaluator_of, has_diverged, is_evaluated
from rubricsvc.cli.run_evolution import evolution_of
from rubricsvc.cli.run_folders import RUN, folder_record, invocation, is_run, read_record, run_name
from rubricsvc.cli.run_policy import is_in_warm_up, load_policy, warm_up_of
from rubricsvc.cli.run_preflight import is_due, sampled_checks
from rubricsvc.cli.run_preparation import PreparedRun, prepare, print_plan
from rubricsvc.cli.run_recording import complete_record, recorder_of, tracking_of
from rubricsvc.cli.run_warnings import no_signal, print_warnings
from rubricsvc.core.preflight import refusing
from rubricsvc.errors import ConflictError

if TYPE_CHECKING:
    from trainer.config import RunConfig
    from trainer.history import History, Metrics


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run is started. ``changes`` are values of fields, by dotted path, in place of those of the file.

    ``preflight`` says whether its preflight is sampled first; None leaves that to `is_due`.
    """

    resume: bool = False
    allow_drafts: bool = False
    force: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)
    preflight: bool | None = False


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """The record of a run, and whether it was stopped before its last step."""

    record: dict[str, Any]
    stopped: bool = False


def train_run(config: Path, options: RunOptions) -> TrainedRun:
    """Train or resume the run of a configuration file; one that is finished is not trained again."""
    from trainer.config import load_config

    loaded = load_config(config, changes=options.changes)
    resume = options.resume and not is_in_warm_up(loaded)
    _check_start(loaded, resume)
    if resume and is_kept(loaded, options.allow_drafts):
        complete_record(loaded)
        echo(f"{loaded.out} has all {counted(loaded.steps, 'step')} already; to continue, raise `steps` in {config}")
        return TrainedRun(folder_record(loaded.out))
    prepared = prepare(loaded, options.allow_drafts)
    preflight = _preflight(prepared, options, resume)
    print_plan(prepared, resume)
    start_time = time.monotonic()
    record = prepared.audit.record | preflight | invocation(config, options.changes)
    history, run_id = _train(prepared, record, resume)
    if history is None:
        return TrainedRun({}, stopped=True)
    seconds = {"seconds": round(time.monotonic() - start_time, 2)}
    print_warnings(history)
    return TrainedRun({"id": run_id} | folder_record(loaded.out) | seconds, history.stopped)


def _preflight(prepared: PreparedRun, options: RunOptions, resume: bool) -> dict[str, Any]:
    """Check a run before it starts; what is sampled and not stored yet is sampled where that is due.

    A run that is resumed was checked when it began, and keeps what its record says of that.
    """
    if resume:
        before = read_record(prepared.config.out) if is_run(prepared.config.out) else {}
        return {FORCED: before[FORCED]} if FORCED in before else {}
    judged, sampled = checks_of_judge(prepared), stored_checks(prepared)
    if not sampled and (options.force or not refusing(judged)) and is_due(prepared, options.preflight):
        sampled = sampled_checks(prepared)
    return require_passed([*judged, *sampled], force=options.force)


def _train(prepared: PreparedRun, record: Mapping[str, Any], resume: bool) -> tuple[History | None, int | None]:
    """Train, evaluate and run the baselines; return the history, None if the warm-up was stopped, and the run's id."""
    from trainer import checkpoint
    from trainer.loop import train

    run, tasks = prepared.config, prepared.tasks
    check_prompts(run, tasks)
    name = run_name(run.out, resume)
    with (
        checkpoint.locked(run.out),
        prepared.rewards() as rewards,
        evolution_of(run, name, rewards) as evolution,
        progress_bar("training") as bar,
        stop_on_interrupt() as stop,
        evaluator_of(run, tasks.held_out, rewards, prepared.rewards, on_progress=bar.note, stop=stop) as evaluator,
        recorder_of(run, name, stop) as recorder,
    ):
        if not warm_up_of(run, tasks.demonstrated, rewards, evaluator, bar=bar, stop=stop):
            return None, None
        bar.update((checkpoint.steps(run.out) or [0])[-1] if resume else 0, run.steps, "")
        options: dict[str, Any] = {"on_step": _shown_by(bar, run), "stop": stop, "resume": resume}
        options |= {"record": {**record, RUN: name}, "recorder": recorder, "tracking": tracking_of(run, name)}
        options |= {"evolution": evolution, "evaluation": evaluation_of(evaluator, run, recorder)}
        history = train(load_policy(run), tasks.train, rewards, run, **options)
        if not history.stopped and evaluator is not None and run.eval is not None and run.eval.baselines:
            options = {"source_of": prepared.rewards, "bar": bar, "stop": stop, "recorder": recorder}
            history.stopped = not baselines_of(run, tasks, rewards, evaluator, **options)
    return history, recorder.run_id


def _shown_by(bar: ProgressBar, run: RunConfig) -> Callable[[Metrics], None]:
    """Return what shows each step of a run in its progress bar."""

    def on_step(step: Metrics) -> None:
        reward = f"reward {cell(step['reward'])} ± {cell(step['reward_std'])}"
        bar.update(step["step"], run.steps, ", ".join(filter(None, (reward, no_signal(step, run.algorithm)))))

    return on_step


def exit_stopped(command: str) -> NoReturn:
    """Print the command that continues, and exit."""
    echo(f"stopped; continue with: rubricsvc {command}")
    raise typer.Exit(INTERRUPTED)


def _check_start(config: RunConfig, resume: bool) -> None:
    """Check trackers and folder before anything is loaded."""
    from trainer import checkpoint
    from trainer.trackers.tracking import check_installed

    check_installed(config.trackers)
    checkpoint.check_folder(config.out, resume=resume)


def is_kept(config: RunConfig, allow_drafts: bool) -> bool:
    """Return whether a run has all its steps and evaluations, so that it is not trained again.

    Raises:
        ConflictError: It has more steps, or has them with other settings, prompts or rubrics than it would have now.
    """
    from trainer import checkpoint

    if not is_run(config.out) or not (saved := checkpoint.steps(config.out)):
        return False
    if saved[-1] > config.steps:
        message = f"{config.out} has {saved[-1]} steps, and `steps` is {config.steps}"
        raise ConflictError(message, hint="raise `steps`, choose another `out`, or delete the folder", path="steps")
    if not checkpoint.is_finished(config.out, config.steps) or not is_evaluated(config):
        return False
    _check_unchanged(config, allow_drafts)
    return True


def is_done(config: RunConfig, allow_drafts: bool) -> bool:
    """Return whether a run of several is not trained again: it is kept, or stopped where its reward diverges from gold.

    Raises:
        ConflictError: It was trained with other settings, prompts or rubrics than it would be now.
    """
    from trainer import checkpoint

    if has_diverged(config) and checkpoint.steps(config.out):
        _check_unchanged(config, allow_drafts)
        return True
    return is_kept(config, allow_drafts)


def _check_unchanged(config: RunConfig, allow_drafts: bool) -> None:
    from trainer.finished import check_unchanged

    prepared = prepare(config, allow_drafts)
    check_unchanged(prepared.config, prepared.tasks.train, prepared.tasks.held_out)


@contextmanager
def stop_on_interrupt() -> Iterator[Event]:
    """Yield an event that the first Ctrl-C or SIGTERM sets; a second Ctrl-C raises KeyboardInterrupt."""
    stop = Event()

    def on_signal(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, before[number])
        echo("\nstopping after this step, with a checkpoint; press Ctrl-C again to stop now")

    before: dict[int, Any] = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
