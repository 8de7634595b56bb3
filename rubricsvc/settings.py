"""One class of settings: ``RUBRICSVC_*`` in the environment, then ``rubricsvc.toml``, then the defaults here."""

from __future__ import annotations

import math
import os
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from platformdirs import user_cache_path, user_data_path
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from rubricsvc.core.validation_messages import first_error
from rubricsvc.errors import InvalidError

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
BROKERS = ("memory", "redis", "rediss", "sentinel", "amqp", "amqps", "pyamqp")


def _default_database() -> str:
    return f"sqlite:///{user_data_path('rubricsvc') / 'rubricsvc.db'}"


def _broker(url: str) -> str:
    for one in url.split(";"):  # Celery takes several addresses of one broker
        if "://" not in one or urlsplit(one).scheme not in BROKERS:
            raise ValueError("expected memory://, redis://HOST/NUMBER or amqp://USER:PASSWORD@HOST//")
        _ = urlsplit(one).port
    return url


class Settings(BaseSettings):
    """What can be set. ``rubricsvc doctor`` shows what is in force."""

    model_config = SettingsConfigDict(
        env_prefix="RUBRICSVC_", toml_file="rubricsvc.toml", extra="forbid", allow_inf_nan=False
    )

    database_url: str = Field(
        default_factory=_default_database,
        description="SQLAlchemy URL: sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME",
    )
    broker_url: Annotated[str, AfterValidator(_broker)] = Field(
        "memory://",
        description="memory:// (one process), redis://… or amqp://…",
    )
    host: str = Field("127.0.0.1", description="address that `serve` listens on")
    port: int = Field(8321, ge=0, le=65535, description="port that `serve` listens on")
    require_key: bool | None = Field(None, description="ask for API keys; unset: only when host is not loopback")
    cache_dir: Path = Field(
        default_factory=lambda: user_cache_path("rubricsvc"), description="where the embedded model is kept"
    )
    claim_size: int = Field(32, ge=1, le=1000, description="completions that a worker claims at a time")
    lease_seconds: float = Field(120.0, gt=0, description="how long a silent worker keeps its leases")
    heartbeat_seconds: float = Field(
        0.5, gt=0, validate_default=True, description="how often a worker looks whether it still holds them"
    )
    max_leases: int = Field(10, ge=1, description="leases lost by dying workers before an item fails as worker_lost")
    reconcile_seconds: float = Field(5.0, gt=0, description="how often lost leases are returned and bells rung again")
    drain_seconds: float = Field(600.0, gt=0, description="longest time that one Celery message keeps a worker")
    grader_seconds: float = Field(300.0, gt=0, description="how long /v1/graders/run waits for its answer")
    sandbox: Literal["bwrap", "none"] = Field("bwrap", description="what confines code that checks run")
    vllm_options: dict[str, Any] = Field(
        default_factory=dict, description='how vLLM uses the machine, as JSON: {"tensor_parallel_size": 2}'
    )
    log_level: Annotated[LogLevel, BeforeValidator(lambda level: str(level).upper())] = Field(
        "INFO", description="DEBUG, INFO, WARNING or ERROR"
    )

    @field_validator("heartbeat_seconds")
    @classmethod
    def _renewed_in_time(cls, seconds: float, others: ValidationInfo) -> float:
        lease = others.data.get("lease_seconds", math.inf)
        if 3 * seconds > lease:
            raise ValueError(f"is at most a third of lease_seconds ({lease:g}), or leases run out between two looks")
        return seconds

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def read_settings() -> Settings:
    """The settings as they stand now.

    Raises:
        InvalidError: a value is wrong, or ``rubricsvc.toml`` is no TOML.
    """
    try:
        return Settings()
    except ValidationError as error:
        name, words = first_error(error, quoted=False)  # a URL may hold a password
        hint = "see the environment and rubricsvc.toml; `rubricsvc doctor` shows what is in force"
        raise InvalidError(f"setting RUBRICSVC_{name.upper()}: {words}", hint=hint) from error
    except ValueError as error:  # of tomllib, or of bytes that are no text
        raise InvalidError(f"rubricsvc.toml cannot be read: {error}", hint="mend or remove it") from error


@lru_cache
def get_settings() -> Settings:
    """The settings of this process, read once. Raises what `read_settings` raises."""
    return read_settings()


def secret(variable: str | None) -> str | None:
    """What an environment variable holds that is sent in a header; None where it is not set.

    Raises:
        InvalidError: it holds what no header takes, a line break for example.
    """
    value = os.environ.get(variable or "") or None
    if value is not None and not (value.isascii() and value.isprintable() and " " not in value):
        raise InvalidError(
            f"the key in {variable} holds a line break, a blank or another character that no header takes",
            hint=f"set it without: export {variable}=… (a file often ends in a line break)",
        )
    return value
