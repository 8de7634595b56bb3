"""Environments by the names that configurations have."""

from __future__ import annotations

from pathlib import Path

from rubricsvc.errors import needs_extra
from rubricsvc.settings import get_settings
from trainer.config import EnvironmentConfig, ToolsConfig, TrainConfig
from trainer.environments.environment import Environment
from trainer.environments.episodes import EpisodeLimits
from trainer.environments.tools import SHOWN_CHARS, Calculator, Research
from trainer.policies.policy import Acting

NO_TOOLS = ToolsConfig()


def make_acting(config: EnvironmentConfig, collections_dir: Path, tools: ToolsConfig = NO_TOOLS) -> Acting:
    """Return the environment of a configuration, with the limits of an episode."""
    environment: Environment | None = None
    match config.name:
        case "research":
            assert config.collection is not None  # noqa: S101 - the configuration was checked
            environment = Research(
                collections_dir, config.collection, config.snippet_chars, min(SHOWN_CHARS, config.max_result_chars)
            )
        case "calculator":
            environment = Calculator()
        case "mcp":
            pass
    if environment is None or tools.mcp:
        with needs_extra("mcp"):
            from trainer.environments.mcp_tools import McpTools
        environment = McpTools(tools.mcp, environment, config.tool_timeout_s)
    limits = EpisodeLimits(config.max_turns, config.max_result_chars, config.tool_timeout_s, config.notes)
    return Acting(environment, limits, config.max_tokens)


def acting_of(run: TrainConfig) -> Acting | None:
    """Return the environment of a run; None without one."""
    return make_acting(run.environment, get_settings().collections_dir, run.tools) if run.environment else None
