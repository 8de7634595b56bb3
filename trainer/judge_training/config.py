"""Configuration of judge training, and its TOML file. docs/judge-training.md describes every field."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from rubricsvc.core.judge import Judge
from trainer.config import ConfigSection


class LoraConfig(ConfigSection):
    """A low-rank adapter (LoRA, arXiv 2106.09685): W + alpha / rank · B·A, on layers from ``first_layer``."""

    rank: int = Field(default=16, ge=1)
    alpha: float = Field(default=32.0, gt=0.0)
    first_layer: int = Field(default=0, ge=0)
    modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class JudgeOptimConfig(ConfigSection):
    """AdamW. The learning rate rises over ``warmup_steps`` and falls linearly to ``final_lr`` times itself.

    ``batch_examples`` are the completions of an optimiser step; ``max_tokens`` limits a forward pass, with padding.
    """

    lr: float = Field(default=6e-4, gt=0.0)
    final_lr: float = Field(default=0.1, ge=0.0, le=1.0)
    warmup_steps: int = Field(default=20, ge=0)
    weight_decay: float = Field(default=0.0, ge=0.0)
    grad_clip: float = Field(default=1.0, gt=0.0)
    batch_examples: int = Field(default=16, ge=1)
    max_tokens: int = Field(default=4096, ge=64)


class ValidationConfig(ConfigSection):
    """Early stopping: the loss on the validation part every ``every`` steps; best weights are kept."""

    every: int = Field(default=50, ge=1)
    patience: int = Field(default=5, ge=1)
    max_examples: int = Field(default=200, ge=1)


class SplitConfig(ConfigSection):
    """Which examples are held out: whole prompts, criteria or data sets, or new completions of known prompts.

    ``held_out`` names the criteria (families) or data sets of a split by these. ``test`` and ``validation`` are shares.
    """

    by: Literal["prompt", "completion", "criterion", "source"] = "prompt"
    held_out: tuple[str, ...] = ()
    test: float = Field(default=0.1, gt=0.0, lt=1.0)
    validation: float = Field(default=0.05, gt=0.0, lt=1.0)
