"""The table ``[environment]`` of a run's configuration."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from trainer.config_file import ConfigSection


class EnvironmentConfig(ConfigSection):
    """An environment that the policy acts in, with tools; a completion is then an episode of several turns.

    ``collection`` is what ``research`` searches. ``max_turns`` and ``max_tokens`` limit an episode; tokens are those
    after the prompt, what the environment wrote included. A result of a tool has up to ``max_result_chars`` characters,
    and the calls of a turn take up to ``tool_timeout_s`` seconds.
    """

    name: Literal["research", "calculator"]
    collection: str | None = None
    max_turns: int = Field(default=8, ge=1)
    max_tokens: int = Field(default=1024, ge=2)
    max_result_chars: int = Field(default=2000, ge=1)
    tool_timeout_s: float = Field(default=10.0, gt=0.0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.name == "research") != (self.collection is not None):
            raise ValueError(
                f"environment {self.name!r} {'needs' if self.name == 'research' else 'has no'} `collection`"
            )
        return self
