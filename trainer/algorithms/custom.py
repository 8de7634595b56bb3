"""The algorithm of a run: advantages and a loss, built in or of a file of one's own.

::

    # my_algorithm.py, named in the run's TOML: algorithm = "my_algorithm.py"
    def advantages(batch, how):        # GroupRewards, OptimConfig -> Tensor [G, M]
        return (batch.rewards_GM - batch.rewards_GM.nanmean(-1, keepdim=True)).nan_to_num(0.0)

    from trainer.algorithms.losses import loss        # TokenBatch, OptimConfig -> Loss, or a tensor with one number
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from rubricsvc.errors import InvalidError
from trainer.algorithms import advantages as built_in
from trainer.algorithms import losses
from trainer.algorithms.advantages import GroupRewards
from trainer.algorithms.losses import Loss, TokenBatch, Totals

if TYPE_CHECKING:
    from trainer.config import OptimConfig


class Algorithm(NamedTuple):
    """What a run learns by: advantages [G, M] of the rewards of a batch, and a micro-batch's part of its loss."""

    advantages: Callable[[GroupRewards, OptimConfig], Tensor] = built_in.advantages
    loss: Callable[[TokenBatch, OptimConfig], Loss] = losses.loss

    def checked(self) -> Algorithm:
        """Return the algorithm with what its functions return checked; a loss that is a plain tensor has no counts."""

        def advantages(batch: GroupRewards, how: OptimConfig) -> Tensor:
            found, shape = torch.as_tensor(self.advantages(batch, how)), batch.rewards_GM.shape
            if found.shape != shape or not found.isfinite().all():
                what = "NaN or infinity" if found.shape == shape else f"shape {list(found.shape)}"
                raise InvalidError(f"advantages() returned {what}; expected finite numbers of shape {list(shape)}")
            return found

        def loss(batch: TokenBatch, how: OptimConfig) -> Loss:
            found: Loss | Tensor = self.loss(batch, how)
            result = found if isinstance(found, Loss) else Loss(torch.as_tensor(found), *torch.zeros(2))
            if result.value.shape != () or not result.value.requires_grad:
                raise InvalidError("loss() returned no single number with a gradient")
            return result

        return Algorithm(advantages, loss)


def algorithm_of(name: str, how: OptimConfig) -> Algorithm:
    """Return the algorithm of a run; that of a file is tried on six made-up completions."""
    if not name.endswith(".py"):
        return Algorithm()
    try:
        defined = runpy.run_path(name)
        if missing := [one for one in Algorithm._fields if not callable(defined.get(one))]:
            raise InvalidError(f"no function {' and no '.join(missing)}")
        found = Algorithm(*(defined[one] for one in Algorithm._fields)).checked()
        rewards_GM = torch.tensor([[0.0, 0.5, 1.0], [0.2, torch.nan, 0.4]], dtype=torch.float64)
        advantages_B = found.advantages(GroupRewards(rewards_GM), how).flatten().float()
        logp_BT = torch.linspace(-3, -0.1, 24).view(6, 4).requires_grad_()
        mask_BT = torch.arange(4) < torch.tensor([[4], [1], [2], [3], [4], [2]])
        batch = TokenBatch(logp_BT, logp_BT.detach().roll(1), advantages_B, mask_BT, Totals(16, 6, 4))
        found.loss(batch, how)
    except Exception as error:
        what = error.message if isinstance(error, InvalidError) else f"{type(error).__name__}: {error}"
        hint = "`trainer/algorithms/custom.py` describes both functions"
        raise InvalidError(f"{name}: {what}", hint=hint, path="algorithm") from error
    return found
