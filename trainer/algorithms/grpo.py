"""GRPO's advantages of plain rewards, for code without the configuration of a run (arXiv 2402.03300)."""

from __future__ import annotations

from torch import Tensor

from trainer.algorithms.advantages import GroupRewards
from trainer.algorithms.advantages import advantages as configured
from trainer.config import OptimConfig


def advantages(rewards_GM: Tensor, std_floor: float = 0.0) -> Tensor:
    """Return group-relative advantages [G, M] of G groups of M completions; a reward of NaN is *not scored* and gets 0.

    ``std_floor`` is the smallest divisor, in units of the reward.
    """
    return configured(GroupRewards(rewards_GM, std_floor), OptimConfig())
