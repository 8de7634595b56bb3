"""GRPO: advantages relative to the group (arXiv 2402.03300), with DAPO's token mean and higher upper clip (2503.14476).

With reward R_i of completion i in a group G sampled from one prompt, and its t-th token's probability ratio r_it ::

    A_i  = (R_i - mean_G R) / (max(std_G R, floor) + 1e-4)           std with Bessel's correction
    L    = - 1/N Σ_i Σ_t min(r_it A_i, clip(r_it, 1 - low, 1 + high) A_i)  +  β/N Σ_i Σ_t k3_it
    r_it = π(y_it) / π_old(y_it)        k3 = exp(x) - x - 1,  x = log π_ref(y_it) - log π(y_it)
    N    = number of tokens of all scored completions in the batch

``floor`` is the smallest standard deviation that counts as signal: a judge repeats a reward only to within its
repeatability, and a group whose rewards differ by less would otherwise get advantages as large as any other group's.
π is the distribution that is sampled from, at its temperature and restricted to its nucleus
(`trainer.policies.policy`).

A server samples from a distribution μ that its kernels compute a little otherwise. Each token's gain then has the
weight min(π_old(y_it) / μ(y_it), 2): truncated importance sampling (Yao et al. 2025, "Your efficient RL framework
secretly brings you off-policy RL training").

A completion whose reward is None (NaN here) takes no part: not in its group's mean and std, not in L, not in N.

Shapes in names: G groups, M members of a group, B = G·M completions, T tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

EPS = 1e-4
"""Added to the standard deviation, as TRL does."""
MAX_CORRECTION = 2.0
"""Largest weight of a token that a server sampled."""


def advantages(rewards_GM: Tensor, std_floor: float = 0.0, pool_of_G: Tensor | None = None) -> Tensor:
    """Return group-relative advantages [G, M]; a reward of NaN is *not scored* and gets 0.

    A group with fewer than two scored members, or with equal rewards, has no signal: all its advantages are 0.

    ``std_floor`` is the smallest divisor, in units of the reward. With ``pool_of_G``, the pool of each group, the
    divisor is the deviation within the groups of a pool together, not the group's own.
    """
    mean_G1, std_G1 = group_statistics(rewards_GM)
    divisor_G1 = std_G1 if pool_of_G is None else _pooled(rewards_GM, std_G1, pool_of_G)
    scaled_GM = (rewards_GM - mean_G1) / (divisor_G1.clamp(min=std_floor) + EPS)
    return torch.where(std_G1 > 0, scaled_GM, 0.0).nan_to_num(0.0)


def _pooled(rewards_GM: Tensor, std_G1: Tensor, pool_of_G: Tensor) -> Tensor:
    """Return for each group [G, 1] the pooled standard deviation within the groups of its pool."""
    freedom_G = ((~rewards_GM.isnan()).sum(-1) - 1).clamp(min=0).to(std_G1.dtype)
    squares_G = std_G1.squeeze(-1).square() * freedom_G
    pools = int(pool_of_G.max()) + 1
    sums_P, freedoms_P = (
        torch.zeros(pools, dtype=std_G1.dtype).index_add(0, pool_of_G, one) for one in (squares_G, freedom_G)
    )
    return (sums_P / freedoms_P.clamp(min=1.0)).sqrt()[pool_of_G].unsqueeze(-1)


def counted_rewards(rewards_GM: Tensor, truncated_B: Tensor, lengths_B: Tensor, limit: int, overlong: str) -> Tensor:
    """Return the rewards [G, M] as they count for completions that are cut off at ``limit`` tokens (DAPO, 2503.14476).

    ``keep`` leaves them. ``mask`` (overlong filtering) gives them NaN, *not scored*: they are in no group's mean and
    deviation, and not in the loss. ``zero`` gives them 0. ``soft`` (soft overlong punishment) subtracts up to 1
    from any completion, linearly over the last fifth of the limit, and 1 from those cut off. NaN stays NaN.
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


@dataclass(frozen=True)
class Loss:
    """``value`` is differentiable; ``clipped`` (tokens whose gradient the clip stops) and ``kl`` (nats) are sums."""

    value: Tensor
    clipped: Tensor
    kl: Tensor


def loss(
    logp_BT: Tensor,
    old_logp_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    *,
    tokens: int,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    kl_beta: float = 0.0,
    ref_logp_BT: Tensor | None = None,
    sampled_logp_BT: Tensor | None = None,
) -> Loss:
    """Return this micro-batch's part of L.

    Log-probabilities are in nats: ``logp_BT`` of the policy, with gradient, ``old_logp_BT`` of the policy that sampled,
    ``ref_logp_BT`` of the reference policy (without them there is no penalty), ``sampled_logp_BT`` of the server that
    sampled (without them the policy did). ``mask_BT`` is True at a token of a
    completion. ``tokens`` is N of the whole batch, so that the parts add up to L.
    """
    advantages_B1 = advantages_B.unsqueeze(-1)
    ratio_BT = (logp_BT - old_logp_BT).exp()
    clipped_BT = ratio_BT.clamp(1 - clip_low, 1 + clip_high)
    gain_BT = torch.minimum(ratio_BT * advantages_B1, clipped_BT * advantages_B1)
    stopped_BT = (ratio_BT * advantages_B1 > gain_BT) & mask_BT
    if sampled_logp_BT is not None:
        gain_BT = gain_BT * (old_logp_BT - sampled_logp_BT).exp().clamp(max=MAX_CORRECTION)
    kl_BT = torch.zeros_like(logp_BT)
    if ref_logp_BT is not None:
        kl_BT = k3(logp_BT, ref_logp_BT)
    value = torch.where(mask_BT, kl_beta * kl_BT - gain_BT, 0.0).sum() / tokens
    return Loss(value, stopped_BT.sum(), torch.where(mask_BT, kl_BT.detach(), 0.0).sum())


def k3(logp_BT: Tensor, ref_logp_BT: Tensor) -> Tensor:
    """Return the estimate of KL(π ‖ π_ref) at each token sampled from π, in nats: never negative, unbiased."""
    gap_BT = ref_logp_BT - logp_BT
    return gap_BT.exp() - gap_BT - 1
