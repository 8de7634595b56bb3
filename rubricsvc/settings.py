"""Settings: ``RUBRICSVC_*`` in the environment, then ``rubricsvc.toml``, then the defaults here."""

import math
import os
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from platformdirs import user_cache_path, user_data_path
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from rubricsvc.core.judge import Network
from rubricsvc.core.states import ApprovalPolicy
from rubricsvc.core.validation_messages import first_error
from rubricsvc.errors import InvalidError

_upper = BeforeValidator(lambda level: str(level).upper())
LogLevel = Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], _upper]
BROKERS = ("memory", "redis", "rediss", "sentinel", "amqp", "amqps", "pyamqp")


def _broker(url: str) -> str:
    for one in url.split(";"):  # Celery accepts several addresses of one broker
        if "://" not in one or urlsplit(one).scheme not in BROKERS:
            raise ValueError("expected memory://, redis://HOST/NUMBER or amqp://USER:PASSWORD@HOST//")
        _ = urlsplit(one).port
    return url


class Settings(BaseSettings):
    """All settings, from ``RUBRICSVC_…`` in the environment or ``rubricsvc.toml``. ``rubricsvc doctor`` checks them."""

    model_config = SettingsConfigDict(env_prefix="RUBRICSVC_", toml_file="rubricsvc.toml", allow_inf_nan=False)

    database_url: str = Field(
        default_factory=lambda: f"sqlite:///{user_data_path('rubricsvc') / 'rubricsvc.db'}",
        description="SQLAlchemy URL: sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME",
    )
    broker_url: Annotated[str, AfterValidator(_broker)] = Field(
        "memory://", description="memory:// (one process), redis://… or amqp://…"
    )
    host: str = Field("127.0.0.1", description="address of `rubricsvc serve`")
    port: int = Field(8321, ge=0, le=65535, description="port of `rubricsvc serve`")
    require_key: bool | None = Field(
        None, description="require API keys, which four_eyes always does; unset: required if host is not loopback"
    )
    max_body_mib: float = Field(32.0, gt=0, le=1024, description="maximum MiB of a request body")
    cache_dir: Path = Field(
        default_factory=lambda: user_cache_path("rubricsvc"),
        description="folder of the embedded model, and of merged models for vLLM",
    )
    collections_dir: Path = Field(
        default_factory=lambda: user_data_path("rubricsvc") / "collections",
        description="folder of the collections of documents",
    )
    claim_size: int = Field(32, ge=1, le=1000, description="completions that a worker claims at once")
    lease_seconds: float = Field(120.0, gt=0, description="seconds until the lease of a silent worker expires")
    heartbeat_seconds: float = Field(
        0.5, gt=0, validate_default=True, description="seconds between checks of a worker that it holds its leases"
    )
    max_leases: int = Field(10, ge=1, description="lost leases after which an item fails as worker_lost")
    reconcile_seconds: float = Field(5.0, gt=0, description="seconds between returns of expired leases")
    drain_seconds: float = Field(600.0, gt=0, description="maximum seconds of one Celery task")
    grader_seconds: float = Field(300.0, gt=0, description="maximum seconds of /v1/graders/run")
    outage_seconds: float = Field(
        60.0,
        ge=0,
        description="seconds that clients wait for a service, and commands for a database, that does not answer",
    )
    require_approval: ApprovalPolicy = Field(
        "generated",
        description="rubrics that are drafts until they are approved: generated, all, none; or four_eyes: all, by"
        " another person than the author",
    )
    local_only: bool = Field(
        False, description="refuse judges, tools and trackers that are not on this machine or in local_networks"
    )
    local_networks: tuple[Network, ...] = Field((), description='networks that count as local, as JSON: ["10.0.0.0/8"]')
    sandbox: Literal["bwrap", "none"] = Field("bwrap", description="sandbox for code that checks run")
    vllm_options: dict[str, Any] = Field(
        default_factory=dict, description='vLLM engine arguments as JSON: {"tensor_parallel_size": 2}'
    )
    log_level: LogLevel = Field("INFO", description="DEBUG, INFO, WARNING or ERROR")

    @field_validator("heartbeat_seconds")
    @classmethod
    def _at_most_a_third_of_the_lease(cls, seconds: float, others: ValidationInfo) -> float:
        lease = others.data.get("lease_seconds", math.inf)
        if 3 * seconds > lease:
            raise ValueError(f"must be at most a third of lease_seconds ({lease:g})")
        return seconds

    @classmethod
    def settings_customise_sources(  # type: ignore[override]  # without the names of the other sources
        cls, settings_cls: type[BaseSettings], **sources: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in order of precedence."""
        return sources["init_settings"], sources["env_settings"], TomlConfigSettingsSource(settings_cls)


def read_settings() -> Settings:
    """Read the settings."""
    try:
        return Settings()
    except ValidationError as error:
        name, words = first_error(error, quoted=False)  # a URL may hold a password
        hint = "correct it in the environment or in rubricsvc.toml"
        raise InvalidError(f"setting RUBRICSVC_{name.upper()}: {words}", hint=hint) from error
    except ValueError as error:  # of tomllib, or of undecodable bytes
        raise InvalidError(f"rubricsvc.toml cannot be read: {error}", hint="correct or remove the file") from error


get_settings = lru_cache(read_settings)  # return the settings of this process, read once


def secret(variable: str | None) -> str | None:
    """Return the value of an environment variable that is sent in a header, or None if it is unset."""
    value = os.environ.get(variable or "") or None
    if value is not None and not (value.isascii() and value.isprintable() and " " not in value):
        message = f"the key in {variable} has a line break, a space or another character that headers do not allow"
        hint = f"set it again without that character: export {variable}=… (files often end in a line break)"
        raise InvalidError(message, hint=hint)
    return value
