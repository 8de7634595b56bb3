"""Advantages: how much better a completion is than its baseline.

With reward R_i of completion i, its group G (the scored completions of one prompt) and the batch D ::

    A_i = (R_i - b_i) / d

    baseline   group           b_i = mean_G R                          GRPO, arXiv 2402.03300
               leave_one_out   b_i = mean of the others of G           RLOO, 2402.14740
               batch           b_i = mean_D R                          REINFORCE++, 2501.03262
    divide_by  group           d = max(std_G R, floor) + 1e-4          GRPO
               domain          the same, of the deviation within all groups of the domain
               batch           d = max(std_D (R - b), floor) + 1e-4    REINFORCE++
               rewards         d = max(std_D R, floor) + 1e-4          Lite PPO, 2508.08221
               mean            d = mean_G R; A = 0 where it is 0       MaxRL, 2602.02710
               none            d = 1                                   Dr. GRPO, 2503.20783

Deviations have Bessel's correction. ``floor`` is the smallest deviation that counts as signal: a judge repeats a reward
only to within its repeatability, and a group whose rewards differ by less would get advantages as large as any other.

``by_criterion`` replaces R by the weighted sum of its parts P_k, the values of criteria, each normalised within the
group, so that one with large differences does not hide the others (GDPO, 2601.05242; PAPO, 2603.26535) ::

    R'_i = Σ_k w_k (P_ki - mean_G P_k) / (std_G P_k + 1e-4)

``pairwise_accuracy`` p(δ) is how often the order of two completions is right if their rewards differ by δ. It weights
each difference by what it says of the order, 2p - 1: 1 where all orders are right, 0 where a coin would do as well ::

    R_i - mean_G R = 1/|G| Σ_j (R_i - R_j)    becomes    1/|G| Σ_j (2 p(|R_i - R_j|) - 1) (R_i - R_j)

A completion whose reward is None (NaN here) takes no part in any mean or deviation, and has the advantage 0.

Shapes in names: G groups, M members of a group, B = G·M completions, K parts of a reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from trainer.config import OptimConfig

EPS = 1e-4
"""Added to deviations, as TRL does."""


@dataclass(frozen=True)
class GroupRewards:
    """The rewards of a batch [G, M], NaN where there is none.

    ``std_floor`` is the smallest divisor, in units of the reward; ``domain_of_G`` numbers the domain of each group.
    ``parts_GKM`` are the values of its criteria, negative of pitfalls, and what they do not explain of the reward (a
    veto, a penalty); NaN where there is none. ``weights_GK`` are theirs, without sign; ``quotes`` [B] the texts that
    the verdicts quote, by part.
    """

    rewards_GM: Tensor
    std_floor: float = 0.0
    domain_of_G: Tensor | None = None
    parts_GKM: Tensor | None = None
    weights_GK: Tensor | None = None
    quotes: tuple[Mapping[int, tuple[str, ...]], ...] = ()


def advantages(batch: GroupRewards, how: OptimConfig) -> Tensor:
    """Return the advantages [G, M].

    A group with fewer than two scored members, or with equal rewards, has no signal: all its advantages are 0, except
    where the baseline is that of the batch.
    """
    rewards_GM = _by_criterion(batch) if how.by_criterion else batch.rewards_GM
    mean_G1, std_G1 = group_statistics(rewards_GM)
    batch_mean, batch_std = group_statistics(rewards_GM.reshape(1, -1))
    centred_GM = rewards_GM - (batch_mean if how.baseline == "batch" else mean_G1)
    if how.pairwise_accuracy is not None:
        centred_GM = _reliable_differences(rewards_GM, how.pairwise_accuracy)
    if how.baseline == "leave_one_out":
        count_G1 = (~rewards_GM.isnan()).sum(-1, keepdim=True).to(rewards_GM.dtype)
        centred_GM = centred_GM * (count_G1 / (count_G1 - 1))
    if how.divide_by == "none":
        scaled_GM = centred_GM
    elif how.divide_by == "mean":
        scaled_GM = centred_GM / torch.where(mean_G1 > 0, mean_G1, torch.inf)
    else:
        deviation = {"group": std_G1, "domain": std_G1, "rewards": batch_std}.get(how.divide_by)
        if deviation is None:
            deviation = group_statistics(centred_GM.reshape(1, -1))[1]
        elif how.divide_by == "domain" and batch.domain_of_G is not None:
            same_GG = (batch.domain_of_G[:, None] == batch.domain_of_G).to(std_G1.dtype)
            freedom_G1 = ((~rewards_GM.isnan()).sum(-1, keepdim=True) - 1).clamp(min=0).to(std_G1.dtype)
            deviation = ((same_GG @ (std_G1.square() * freedom_G1)) / (same_GG @ freedom_G1).clamp(min=1.0)).sqrt()
        scaled_GM = centred_GM / (deviation.clamp(min=batch.std_floor) + EPS)
    return torch.where((batch_std if how.baseline == "batch" else std_G1) > 0, scaled_GM, 0.0).nan_to_num(0.0)


def _reliable_differences(rewards_GM: Tensor, accuracy: float | Sequence[tuple[float, float]]) -> Tensor:
    """Return the mean weighted difference of each reward to those of its group.

    ``accuracy`` are pairs of difference and accuracy, between which it is linear; or the standard deviation σ of a
    normal error of each reward, so that p(δ) = Φ(δ / √2σ).
    """
    gaps_GMM = rewards_GM.unsqueeze(-1) - rewards_GM.unsqueeze(-2)
    if isinstance(accuracy, float):
        weights_GMM = torch.erf(gaps_GMM.abs() / (2 * accuracy))
    else:
        known = np.array(sorted(accuracy))
        right = np.interp(gaps_GMM.abs().cpu().numpy(), known[:, 0], known[:, 1])
        weights_GMM = (2 * torch.from_numpy(right).to(gaps_GMM) - 1).clamp(min=0.0)
    count_G1 = (~rewards_GM.isnan()).sum(-1, keepdim=True)
    return ((weights_GMM * gaps_GMM).nansum(-1) / count_G1).where(~rewards_GM.isnan(), torch.nan)


def _by_criterion(batch: GroupRewards) -> Tensor:
    """Return R' [G, M].

    A part without a deviation, or without values, adds nothing. Without parts the reward is the only one.
    """
    parts_GKM, weights_GK = batch.parts_GKM, batch.weights_GK
    if parts_GKM is None or weights_GK is None:
        parts_GKM, weights_GK = batch.rewards_GM[:, None], torch.ones_like(batch.rewards_GM[:, :1])
    unscored_GM = batch.rewards_GM.isnan()
    parts_GKM = parts_GKM.masked_fill(unscored_GM[:, None], torch.nan)
    mean_GK1, std_GK1 = group_statistics(parts_GKM)
    normalised_GKM = torch.where(std_GK1 > 0, (parts_GKM - mean_GK1) / (std_GK1 + EPS), 0.0)
    return (weights_GK.unsqueeze(-1) * normalised_GKM).nansum(1).masked_fill(unscored_GM, torch.nan)


def counted_rewards(rewards_GM: Tensor, truncated_B: Tensor, lengths_B: Tensor, limit: int, overlong: str) -> Tensor:
    """Return the rewards [G, M] as they count for completions that are cut off at ``limit`` tokens (DAPO, 2503.14476).

    ``keep`` leaves them, and so does ``mask_loss``, which leaves the completion out of the loss (overlong filtering).
    ``mask`` gives them NaN, *not scored*: they are in no group's mean and deviation, and not in the loss. ``zero``
    gives them 0. ``soft`` (soft overlong punishment) subtracts up to 1 from any completion, linearly over the last
    fifth of the limit, and 1 from those cut off. NaN stays NaN.
    """
    truncated_GM = truncated_B.view(rewards_GM.shape).to(rewards_GM.device)
    if overlong == "mask":
        return rewards_GM.masked_fill(truncated_GM, torch.nan)
    if overlong == "zero":
        return torch.where(truncated_GM & ~rewards_GM.isnan(), 0.0, rewards_GM)
    if overlong == "soft":
        over_GM = lengths_B.view(rewards_GM.shape).to(rewards_GM) - 0.8 * limit
        return rewards_GM - torch.where(truncated_GM, 1.0, (over_GM / (0.2 * limit)).clamp(0.0, 1.0))
    return rewards_GM


def group_statistics(rewards_GM: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation (Bessel) [G, 1] over the scored members of each group.

    The deviation is 0 for equal rewards, exactly, and for fewer than two scored members; the mean of none is NaN.
    """
    scored_GM = ~rewards_GM.isnan()
    count_G1 = scored_GM.sum(-1, keepdim=True)
    mean_G1 = rewards_GM.nanmean(-1, keepdim=True)
    squares_G1 = torch.where(scored_GM, rewards_GM - mean_G1, 0.0).square().sum(-1, keepdim=True)
    lowest_G1 = rewards_GM.nan_to_num(torch.inf).amin(-1, keepdim=True)
    highest_G1 = rewards_GM.nan_to_num(-torch.inf).amax(-1, keepdim=True)
    # The mean of equal numbers need not be that number in floating point; a difference of 1e-17 is no signal.
    differ_G1 = (count_G1 >= 2) & (highest_G1 > lowest_G1)
    return mean_G1, torch.where(differ_G1, (squares_G1 / (count_G1 - 1).clamp(min=1)).sqrt(), 0.0)


def best_rows(rewards_GM: Tensor) -> Tensor:
    """Return the rows of B that are the best of their groups; of equal ones the first. NaN is *not scored*.

    A group without a reward has none. Best-of-n supervised learns them by their likelihood (`losses.likelihood`): with
    as many samples, of the *starting* policy, judged as often, and as many updates, it is the baseline of reinforcement
    learning at equal compute (arXiv 2304.06767, 2407.14622).
    """
    groups = (~rewards_GM.isnan()).any(-1).nonzero().flatten()
    best = rewards_GM[groups].nan_to_num(-torch.inf).argmax(-1)
    return groups * rewards_GM.shape[-1] + best
