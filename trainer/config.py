"""Configuration of a training run, and its TOML file. docs/training.md describes every field."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
)

from rubricsvc.core.judge import Judge
from rubricsvc.core.validation_messages import field_messages
from rubricsvc.errors import InvalidError, NotFoundError

Config = TypeVar("Config", bound="ConfigSection")


class ConfigSection(BaseModel):
    """Base of the file's tables. An unknown field is an error: a misspelt setting must not train with the default."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


class PolicyConfig(ConfigSection):
    """The policy. ``model`` is ``embedded``, a folder, or a name on the Hugging Face hub; ``device`` CUDA, else CPU."""

    model: str = "embedded"
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    device: str | None = None


class DataConfig(ConfigSection):
    """A file of prompts with their rubrics. ``path`` is relative to the configuration file."""

    path: Path
    format: str | None = None


class SamplingConfig(ConfigSection):
    """Sampling of rollouts. ``max_new_tokens`` limits one completion; a step has prompts times group completions."""

    prompts_per_step: int = Field(default=4, ge=1)
    group_size: int = Field(default=8, ge=2)
    max_new_tokens: int = Field(default=256, ge=1)
    temperature: float = Field(default=1.0, gt=0.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)


class OptimConfig(ConfigSection):
    """AdamW and the loss.

    ``std_floor`` is the smallest standard deviation of a group that advantages are divided by, in units of the reward;
    ``judge`` stands for the judge's measured repeatability. ``updates_per_batch`` is the number of optimiser steps on
    the same completions, ``micro_batch`` the completions per forward pass (unset: the whole batch at once).
    """

    lr: float = Field(default=1e-5, gt=0.0)
    warmup_steps: int = Field(default=0, ge=0)
    weight_decay: float = Field(default=0.0, ge=0.0)
    grad_clip: float = Field(default=1.0, gt=0.0)
    clip_low: float = Field(default=0.2, gt=0.0, lt=1.0)
    clip_high: float = Field(default=0.28, gt=0.0)
    kl_beta: float = Field(default=0.0, ge=0.0)
    std_floor: Annotated[float, Field(ge=0.0)] | Literal["judge"] = "judge"
    updates_per_batch: int = Field(default=1, ge=1)
    micro_batch: int | None = Field(default=None, ge=1)


LocalJudge = Annotated[
    Annotated[str, Tag("name")] | Annotated[Judge, Tag("local")],
    Discriminator(lambda value: "name" if isinstance(value, str) else "local"),
]
"""The name of a judge in the database, or a judge's own fields."""


class EvolveConfig(ConfigSection):
    """Evolution of the rubrics while the policy trains: rounds of proposals, from groups of its completions.

    ``proposer`` is the judge whose model proposes, ``trusted`` one that the values of criteria are compared with.
    Of a step with a round, the proposer is shown up to ``shown`` completions of each prompt. ``weight`` is that of an
    evolved criterion, as a share of the authored criteria's absolute weights. A retired criterion is tried again
    ``retest_every`` steps after its last trial, at most ``max_retests`` in a round. With ``labels``, criteria are
    compared with people's overall labels of the prompt's completions, where there are any.
    """

    proposer: LocalJudge
    trusted: LocalJudge | None = None
    approve: Literal["auto", "human"] = "auto"
    every: int = Field(default=10, ge=1)
    shown: int = Field(default=8, ge=2, le=64)
    max_proposals: int = Field(default=4, ge=1, le=20)
    max_active: int = Field(default=5, ge=1, le=100)
    weight: float = Field(default=0.1, gt=0.0, le=1.0)
    min_separation: float = Field(default=0.05, ge=0.0, lt=0.5)
    retest_every: int = Field(default=50, ge=1)
    max_retests: int = Field(default=8, ge=1)
    labels: bool = True

    @field_validator("proposer")
    @classmethod
    def _has_a_model(cls, proposer: str | Judge) -> str | Judge:
        if isinstance(proposer, Judge) and not proposer.model:
            raise ValueError(f"a {proposer.mode} has no model of its own; name one of its members")
        return proposer


class TrainConfig(ConfigSection):
    """Settings of `trainer.loop.train`.

    The run stops when more than the share ``max_unscored`` of a step's completions has no reward: what is left would
    be mostly noise. With ``out`` unset nothing is written; with ``checkpoint_every`` 0 only the end is kept.
    """

    steps: int = Field(ge=1)
    seed: int = 0
    out: Path | None = None
    checkpoint_every: int = Field(default=50, ge=0)
    keep_checkpoints: int = Field(default=2, ge=1)
    max_unscored: float = Field(default=0.25, ge=0.0, le=1.0)
    criterion_metrics: bool = False
    policy: PolicyConfig = PolicyConfig()
    sampling: SamplingConfig = SamplingConfig()
    optim: OptimConfig = OptimConfig()
    evolve: EvolveConfig | None = None

    @field_validator("seed")
    @classmethod
    def _of_64_bits(cls, seed: int) -> int:
        if not -(2**63) <= seed < 2**63:
            raise ValueError("must fit into 64 bits")
        return seed


class ServiceJudge(ConfigSection):
    """The judge ``name`` of a running ``rubricsvc serve`` at the URL ``service``; the key is ``RUBRICSVC_API_KEY``.

    ``timeout_s`` limits the scoring of a step, waiting for a service that is down included. Completions that are not
    scored by then have no reward.
    """

    service: str
    name: str
    timeout_s: float = Field(default=1800.0, gt=0.0)


def _judge_kind(value: Any) -> str:
    if isinstance(value, str):
        return "name"
    remote = isinstance(value, ServiceJudge) or (isinstance(value, dict) and "service" in value)
    return "service" if remote else "local"


JudgeSetting = Annotated[
    Annotated[str, Tag("name")] | Annotated[ServiceJudge, Tag("service")] | Annotated[Judge, Tag("local")],
    Discriminator(_judge_kind),
]
"""The name of a judge in the database, a judge of a service, or a judge's own fields."""


class RunConfig(TrainConfig):
    """A whole run, as its file describes it: the settings of training, the data and the judge."""

    data: DataConfig
    judge: JudgeSetting
    out: Path


def load_config(path: Path) -> RunConfig:
    """Return the run that a TOML file describes. Its paths are relative to the file; ``out`` is ``runs/<name>``.

    Raises:
        NotFoundError: there is no such file.
        InvalidError: it is not TOML, or fields are unknown, missing or out of range; the message names all of them.
    """
    config = read_toml(path, RunConfig, {"out": str(Path("runs", path.stem))})
    folder = path.parent
    changes: dict[str, Any] = {
        "out": folder / config.out,
        "data": config.data.model_copy(update={"path": folder / config.data.path}),
    }
    if config.policy.model != "embedded" and (folder / config.policy.model).is_dir():
        changes["policy"] = config.policy.model_copy(update={"model": str(folder / config.policy.model)})
    return config.model_copy(update=changes)


def read_toml(path: Path, model: type[Config], defaults: Mapping[str, Any]) -> Config:
    """Return the values of a TOML file; ``defaults`` are those of fields that it leaves out.

    Raises:
        NotFoundError: there is no such file.
        InvalidError: it is not TOML, or fields are unknown, missing or out of range; the message names all of them.
    """
    try:
        data = dict(defaults) | tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotFoundError(f"cannot read {path}: {error.strerror}", path=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidError(f"{path} is not TOML: {error}", path=str(path)) from error
    try:
        return model.model_validate(data)
    except ValidationError as error:
        messages = field_messages(error, model=model, data=data)
        lines = "\n".join(
            "  " + ": ".join(filter(None, (".".join(map(str, one.path)), one.message))) for one in messages
        )
        raise InvalidError(f"{path} is not a training configuration:\n{lines}", path=str(path)) from error
