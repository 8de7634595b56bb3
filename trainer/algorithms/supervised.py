"""Best-of-n supervised: learn the best completion of each group by its likelihood (arXiv 2304.06767, 2407.14622).

With a group G of n completions that the *starting* policy sampled for one prompt, y* = argmax_G R ::

    L = - 1/N Σ_groups Σ_t log π(y*_t)          N = number of tokens of all chosen completions in the batch

It is the baseline of reinforcement learning at equal compute: as many samples, judged as often, as many updates.

Shapes in names: G groups, M members of a group, B = G·M completions, T tokens, K chosen completions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.algorithms.grpo import Loss


def best_rows(rewards_GM: Tensor) -> Tensor:
    """Return the rows [K] of B that are the best of their groups; of equal ones the first. NaN is *not scored*.

    A group without a reward has none.
    """
    groups = (~rewards_GM.isnan()).any(-1).nonzero().flatten()
    best = rewards_GM[groups].nan_to_num(-torch.inf).argmax(-1)
    return groups * rewards_GM.shape[-1] + best


def loss(logp_BT: Tensor, mask_BT: Tensor, *, tokens: int) -> Loss:
    """Return this micro-batch's part of L; ``tokens`` is N of the whole batch, so that the parts add up to L."""
    value = -torch.where(mask_BT, logp_BT, 0.0).sum() / tokens
    zero = torch.zeros((), device=logp_BT.device)
    return Loss(value, zero, zero)
