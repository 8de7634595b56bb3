"""The policy of a run, with the environment that it acts in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubricsvc.settings import get_settings

if TYPE_CHECKING:
    from trainer.config import RunConfig
    from trainer.policies.episode_sampling import Acting
    from trainer.policies.policy import Policy


def load_policy(run: RunConfig) -> Policy:
    """Load the policy that a run starts from."""
    from trainer.policies.policy import Policy

    where = {"dtype": run.policy.dtype, "device": run.policy.device}
    return Policy.load(run.policy.model, **where, acting=acting_of(run))


def acting_of(run: RunConfig) -> Acting | None:
    """Return the environment of a run; None without one."""
    from trainer.environments.registry import make_acting

    return make_acting(run.environment, get_settings().collections_dir) if run.environment else None
