"""GRPO's advantages of plain rewards, for code without the configuration of a run (arXiv 2402.03300)."""

from torch import Tensor

from trainer.algorithms import advantages as configured
from trainer.config import OptimConfig


def advantages(rewards_GM: Tensor, std_floor: float = 0.0) -> Tensor:
    """Return advantages [G, M]: 0 for NaN, *not scored*. ``std_floor`` is the smallest divisor, in units of rewards."""
    return configured.advantages(configured.GroupRewards(rewards_GM, std_floor), OptimConfig())
