"""The tables of a run's configuration that name its prompts: ``[data]``, ``[prompts]`` and ``[demonstrations]``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from trainer.config_file import ConfigSection


class DataSource(ConfigSection):
    """Prompts with their rubrics: those of a file, or stored ones.

    ``path`` is relative to the configuration file. ``store`` has the names of stored rubrics, each with a prompt:
    ``NAME`` (the newest approved version) or ``NAME@VERSION``.
    """

    path: Path | None = None
    format: str | None = None
    store: tuple[str, ...] = ()

    @property
    def given(self) -> list[str]:
        """The names of the fields that name prompts."""
        return [name for name in ("path", "store") if getattr(self, name)]


class DataConfig(DataSource):
    """The prompts to train on: of one source, or of several named ``domains``.

    ``difficulty`` is a file that ``rubricsvc runs difficulty`` wrote; prompts whose pass rate in it is below
    ``min_pass_rate`` or above ``max_pass_rate`` are not trained on, unless their rewards deviate by ``keep_std``.
    """

    domains: dict[str, DataSource] = Field(default={})
    difficulty: Path | None = None
    min_pass_rate: float = Field(default=0.05, ge=0.0, le=1.0)
    max_pass_rate: float = Field(default=0.95, ge=0.0, le=1.0)
    keep_std: float | None = Field(default=None, gt=0.0)

    @property
    def given(self) -> list[str]:
        """The names of the fields that name prompts."""
        return [*super().given, *(["domains"] if self.domains else [])]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.given) != 1:
            raise ValueError(f"expected one of path, store and domains, found {' and '.join(self.given) or 'none'}")
        for name, source in self.domains.items():
            if len(source.given) != 1:
                found = " and ".join(source.given) or "neither"
                raise ValueError(f"domains.{name}: expected one of path and store, found {found}")
        if self.min_pass_rate > self.max_pass_rate:
            raise ValueError(f"min_pass_rate = {self.min_pass_rate:g} is above max_pass_rate = {self.max_pass_rate:g}")
        return self


class DemonstrationsConfig(ConfigSection):
    """Demonstrations that the policy learns before the run (`trainer.warm_up`).

    They are completions of prompts of the data: those of the file ``path``, else those of the script of the environment
    ``research``. They are learned in ``steps`` steps of their own, at the learning rate ``lr``.
    """

    path: Path | None = None
    steps: int = Field(default=16, ge=1)
    lr: float = Field(default=1e-4, gt=0.0)


class PromptsConfig(ConfigSection):
    """Which prompts a step has. Without this table every prompt comes once before any comes again.

    ``weights`` are the shares of domains, in any unit; one that is left out has none. ``divide_by`` is the deviation
    that advantages are divided by: each group's own, or that of the step's groups of its domain together.

    With ``stages``, training begins with this share of the easiest prompts (of each domain), and goes on to the next
    after ``stage_steps`` steps; the pass rates are those of ``data.difficulty``.

    A group of completions with equal rewards teaches nothing: it is replaced by one of another prompt, in at most
    ``max_resamples`` rounds a step (dynamic sampling, arXiv 2503.14476).
    """

    weights: dict[str, Annotated[float, Field(gt=0.0, le=1e100)]] = Field(default={})
    divide_by: Literal["group", "domain"] = "group"
    stages: tuple[Annotated[float, Field(gt=0.0, le=1.0)], ...] = ()
    stage_steps: int = Field(default=50, ge=1)
    max_resamples: int = Field(default=0, ge=0)

    @field_validator("stages")
    @classmethod
    def _grow(cls, stages: tuple[float, ...]) -> tuple[float, ...]:
        if stages and (list(stages) != sorted(set(stages)) or stages[-1] != 1.0):
            raise ValueError("shares must rise, and end with 1.0")
        return stages
