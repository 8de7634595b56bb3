"""The table ``[environment]`` of a run's configuration."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from rubricsvc.core.judge import Address
from trainer.config_file import ConfigSection


class McpServer(ConfigSection):
    """A server of the Model Context Protocol: a ``command`` that is started on this machine, or a ``url``.

    ``allowed_tools`` are those that the policy has, by default all; ``prefix`` is put before their names. The
    command gets the environment variables ``env`` beside HOME and PATH, the URL the key in ``api_key_env``.
    """

    name: str
    command: tuple[str, ...] = ()
    url: Address | None = None
    allowed_tools: tuple[str, ...] = ()
    prefix: str = ""
    env: tuple[str, ...] = ()
    api_key_env: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if bool(self.command) == (self.url is not None):
            raise ValueError(f"MCP server {self.name!r}: expected either `command` or `url`")
        return self


class ToolsConfig(ConfigSection):
    """Tools that an environment has beside its own: those of MCP servers."""

    mcp: tuple[McpServer, ...] = Field(default=())


class EnvironmentConfig(ConfigSection):
    """An environment that the policy acts in, with tools; a completion is then an episode of several turns.

    ``collection`` is what ``research`` searches. ``max_turns`` and ``max_tokens`` limit an episode; tokens are those
    after the prompt, what the environment wrote included. A search shows the first ``snippet_chars`` characters of the
    best part of each document; with 0 ids and titles only. A result has up to ``max_result_chars`` characters, and the
    calls of a turn take up to ``tool_timeout_s`` seconds.

    With ``notes`` the policy may write down what it needs of what it read, and sees nothing else afterwards;
    ``max_tokens`` are then those since the last note. See `trainer.environments.tool_calls`.

    The environment ``mcp`` has no tools but those of the table ``[tools]``.
    """

    name: Literal["research", "calculator", "mcp"]
    collection: str | None = None
    max_turns: int = Field(default=8, ge=1)
    max_tokens: int = Field(default=1024, ge=2)
    max_result_chars: int = Field(default=2000, ge=1)
    snippet_chars: int = Field(default=160, ge=0)
    tool_timeout_s: float = Field(default=10.0, gt=0.0)
    notes: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.name == "research") != (self.collection is not None):
            raise ValueError(
                f"environment {self.name!r} {'needs' if self.name == 'research' else 'has no'} `collection`"
            )
        return self
