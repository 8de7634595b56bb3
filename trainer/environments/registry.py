"""Environments by the names that configurations have."""

from __future__ import annotations

from pathlib import Path

from trainer.environments.calculator import Calculator
from trainer.environments.config import EnvironmentConfig
from trainer.environments.environment import Environment
from trainer.environments.episodes import EpisodeLimits
from trainer.environments.research import Research
from trainer.policies.episode_sampling import Acting


def make_acting(config: EnvironmentConfig, collections_dir: Path) -> Acting:
    """Return the environment of a configuration, with the limits of an episode.

    Raises:
        NotFoundError: There is no such collection.
    """
    environment: Environment
    match config.name:
        case "research":
            assert config.collection is not None  # noqa: S101 - the configuration was checked
            environment = Research(collections_dir, config.collection)
        case "calculator":
            environment = Calculator()
    limits = EpisodeLimits(config.max_turns, config.max_result_chars, config.tool_timeout_s)
    return Acting(environment, limits, config.max_tokens)
