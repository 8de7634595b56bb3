"""The policies of a run, with the environment that they act in."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from rubricsvc.cli.output import ProgressBar, cell
from rubricsvc.settings import get_settings

if TYPE_CHECKING:
    from trainer.config import RunConfig
    from trainer.data.tasks import Task
    from trainer.evaluation.evaluator import Evaluator
    from trainer.history import Metrics
    from trainer.policies.episode_sampling import Acting
    from trainer.policies.policy import Policy
    from trainer.policies.sampling_server import SamplingServer
    from trainer.rewards.source import RewardSource


def load_policy(run: RunConfig) -> Policy:
    """Load the policy that a run starts from: after its demonstrations, if it has any."""
    from trainer.warm_up import warmed_up_model

    return _load(run, run.policy.model if run.demonstrations is None else warmed_up_model(run))


def load_untouched(run: RunConfig) -> Policy:
    """Load the policy of a run before its demonstrations."""
    return _load(run, run.policy.model)


def load_trained(run: RunConfig) -> Policy:
    """Load the policy after the last step of a run."""
    from trainer import checkpoint

    return _load(run, checkpoint.folder(run.out, run.steps) / "model")


def _load(run: RunConfig, model: str | Path) -> Policy:
    from trainer.policies.policy import Policy

    acting = acting_of(run)
    policy = Policy.load(
        str(model), dtype=run.policy.dtype, device=run.policy.device, acting=acting, server=_server_of(run)
    )
    policy.name = run.policy.model
    if policy.server is not None:
        policy.server.check(policy)
    return policy


def _server_of(run: RunConfig) -> SamplingServer | None:
    """Return the server that samples completions; None where the policy does so itself."""
    from trainer.policies.sampling_server import SamplingServer

    return SamplingServer(run.sampling.server, run.out) if run.sampling.server else None


def warm_up_of(
    run: RunConfig,
    tasks: list[Task],
    rewards: RewardSource,
    evaluator: Evaluator | None,
    *,
    bar: ProgressBar,
    stop: Event,
) -> bool:
    """Have the policy learn the demonstrations of a run, unless it has; return False if that was stopped."""
    from trainer import checkpoint
    from trainer.evaluation.baselines import evaluate_untouched
    from trainer.rewards.outages import StopRequested
    from trainer.warm_up import FOLDER, is_warmed_up, warm_up

    settings = run.demonstrations
    if settings is None or is_warmed_up(run):
        return True
    steps = settings.steps

    def on_step(step: Metrics) -> None:
        bar.update(step["step"], steps, f"demonstrations, reward {cell(step['reward'])}")

    load = partial(load_untouched, run)
    bar.update(0, steps, "demonstrations")
    with checkpoint.locked(run.out / FOLDER):
        try:
            if evaluator is not None:
                evaluate_untouched(run.out, load, evaluator)
            return warm_up(run, load, tasks, rewards, on_step=on_step, stop=stop)
        except StopRequested:
            return False


def is_in_warm_up(run: RunConfig) -> bool:
    """Return whether a run was stopped while it learned its demonstrations: it continues when it is started again."""
    from trainer import checkpoint
    from trainer.warm_up import FOLDER

    return run.demonstrations is not None and (run.out / FOLDER).is_dir() and not checkpoint.has_run(run.out)


def acting_of(run: RunConfig) -> Acting | None:
    """Return the environment of a run; None without one."""
    from trainer.environments.registry import make_acting

    return make_acting(run.environment, get_settings().collections_dir, run.tools) if run.environment else None
