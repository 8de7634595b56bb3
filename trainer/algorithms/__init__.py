"""What a policy learns from rewards: advantages, losses, and the presets that combine them."""

import tomllib
from importlib.resources import files

_FILE = files("trainer.algorithms").joinpath("presets.toml")
PRESETS: dict[str, dict[str, float | str | bool]] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
"""By name, settings of ``[optim]`` (`trainer.config.OptimConfig`); what a configuration sets itself wins."""
SUPERVISED = "best_of_n_supervised"
"""The baseline of reinforcement learning: `trainer.algorithms.losses.likelihood`."""
