"""Baselines of a training run."""

from __future__ import annotations

from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

from rubricsvc.cli.output import ProgressBar, cell
from rubricsvc.cli.run_data import RunTasks
from rubricsvc.cli.run_evaluation import SourceOf, evaluator_of
from rubricsvc.cli.run_policy import acting_of, load_policy, load_trained

if TYPE_CHECKING:
    from trainer.config import RunConfig
    from trainer.evaluation.evaluator import Evaluator
    from trainer.history import Metrics
    from trainer.recording.recorder import EvaluationRecorder
    from trainer.rewards.source import RewardSource


def baselines_of(
    run: RunConfig,
    tasks: RunTasks,
    rewards: RewardSource,
    evaluator: Evaluator,
    *,
    source_of: SourceOf,
    bar: ProgressBar,
    stop: Event,
    recorder: EvaluationRecorder | None,
) -> list[Metrics] | None:
    """Run the baselines that are missing; return their evaluations, None if it was stopped."""
    from trainer import checkpoint
    from trainer.evaluation.baselines import FOLDER, OtherPrompts, RunPolicies, run_baselines

    def on_step(step: Metrics) -> None:
        bar.update(step["step"], run.steps, f"best-of-n supervised, reward {cell(step['reward'])}")

    bar.update(0, run.steps, "baselines")
    policies = RunPolicies(partial(load_policy, run), partial(load_trained, run))
    with (
        checkpoint.locked(run.out / FOLDER),
        evaluator_of(_elsewhere(run), tasks.other, rewards, source_of, on_progress=bar.note, stop=stop) as elsewhere,
    ):
        other = OtherPrompts(elsewhere, acting_of(_elsewhere(run))) if elsewhere is not None else None
        options: dict[str, Any] = {"on_step": on_step, "stop": stop, "recorder": recorder}
        return run_baselines(run, policies, tasks.train, rewards, evaluator, other=other, **options)


def check_prompts(run: RunConfig, tasks: RunTasks) -> None:
    """Check, before anything is loaded, that all prompts fit and are of the collections that are searched.

    Raises:
        InvalidError: One does not fit, or was made of another state of its collection.
        NotFoundError: There is no such collection.
    """
    from trainer.sizes import check_sizes

    for config, some in ((run, [*tasks.train, *tasks.held_out]), (_elsewhere(run), tasks.other)):
        if some:
            acting = acting_of(config)
            check_sizes(config, some, acting)
            if acting is not None:
                for task in some:
                    acting.environment.reset(task.prompt)


def _elsewhere(run: RunConfig) -> RunConfig:
    """Return a run with the collection of ``eval.other`` in place of its own; without it, one that is not evaluated."""
    other = run.eval.other if run.eval is not None else None
    if other is None or run.environment is None:
        return run.model_copy(update={"eval": None})
    return run.model_copy(update={"environment": run.environment.model_copy(update={"collection": other.collection})})
