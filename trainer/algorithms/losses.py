"""Losses: how an advantage moves the probabilities of a completion's tokens.

With the advantage A of a completion, the ratio r of its tokens' probabilities now and when they were sampled ::

    L = - aggregate_t w_t g_t  +  β aggregate_t kl_t

    ratio      token             r_t = π(y_t) / π_old(y_t)
               completion_mean   the geometric mean of its tokens' ratios          GSPO, arXiv 2507.18071
               completion        their product                                     RLOO, 2402.14740
    surrogate  clip              g = min(r A, clip(r, 1 - low, 1 + high) A)        PPO; high > low: DAPO, 2503.14476
                                 where A < 0 at least dual·A                       dual clip, 1912.09729
               cispo             g = min(r, 1 + high) A log π, min without gradient    CISPO, 2506.13585
    aggregate  tokens            mean over the tokens of the batch                 DAPO
               completions       mean over completions of the mean over tokens     GRPO, 2402.03300
               constant          sum / (completions · limit of tokens)             Dr. GRPO, 2503.20783
    kl         k1, k2, k3        -x, x²/2, exp(x) - x - 1,  x = log π_ref - log π  (Schulman 2020)
    kl_weighted                  kl_t times r: the unbiased gradient, also of k1   DeepSeek-V3.2, 2512.02556

π is the distribution that is sampled from, at its temperature and restricted to its nucleus
(`trainer.policies.policy`).

A server samples from a distribution μ that its kernels compute a little otherwise. Each gain then has the weight
w = π_old / μ: truncated at most ``correction_max``, or masked: 0 above it, of each token or of the completion (Yao et
al. 2025, "Your efficient RL framework secretly brings you off-policy RL training").

A completion whose reward is None takes no part in L, nor in its counts.

Shapes in names: B completions, T tokens; [B, 1] where a completion has one ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from trainer.config import OptimConfig


@dataclass(frozen=True)
class Loss:
    """``value`` is differentiable; ``clipped`` (tokens whose gradient the clip stops) and ``kl`` (nats) are sums."""

    value: Tensor
    clipped: Tensor
    kl: Tensor


@dataclass(frozen=True)
class Totals:
    """Counts of the whole batch, so that the losses of micro-batches add up to its loss.

    ``limit`` is the largest number of tokens that a completion may have.
    """

    tokens: int
    completions: int
    limit: int


@dataclass(frozen=True)
class TokenBatch:
    """Completions of a micro-batch.

    Log-probabilities are in nats: ``logp_BT`` of the policy, with gradient, ``old_logp_BT`` of the policy that sampled,
    ``ref_logp_BT`` of the reference policy (without them there is no penalty), ``sampled_logp_BT`` of the server that
    sampled (without them the policy did). ``mask_BT`` is True at a token of a completion. ``advantages_B`` may be
    [B, T], an advantage for each token.
    """

    logp_BT: Tensor
    old_logp_BT: Tensor
    advantages_B: Tensor
    mask_BT: Tensor
    totals: Totals
    ref_logp_BT: Tensor | None = None
    sampled_logp_BT: Tensor | None = None


def loss(batch: TokenBatch, how: OptimConfig) -> Loss:
    """Return this micro-batch's part of L."""
    mask_BT, lengths_B1 = batch.mask_BT, batch.mask_BT.sum(-1, keepdim=True).clamp(min=1)
    gain_A = batch.advantages_B if batch.advantages_B.dim() == 2 else batch.advantages_B.unsqueeze(-1)
    log_ratio = batch.logp_BT - batch.old_logp_BT
    if how.ratio != "token":
        log_ratio = torch.where(mask_BT, log_ratio, 0.0).sum(-1, keepdim=True)
        log_ratio = log_ratio / lengths_B1 if how.ratio == "completion_mean" else log_ratio
    ratio = log_ratio.exp()
    if how.surrogate == "cispo":
        bounded = ratio.detach().clamp(max=1 + how.clip_high)
        gain_BT = bounded * gain_A * batch.logp_BT
        stopped = bounded < ratio
    else:
        gain_BT = torch.minimum(ratio * gain_A, ratio.clamp(1 - how.clip_low, 1 + how.clip_high) * gain_A)
        if how.clip_dual is not None:
            gain_BT = torch.where(gain_A < 0, torch.maximum(gain_BT, how.clip_dual * gain_A), gain_BT)
        stopped = ratio * gain_A != gain_BT
    if batch.sampled_logp_BT is not None and how.correction != "none":
        gain_BT = gain_BT * server_correction(batch.old_logp_BT - batch.sampled_logp_BT, mask_BT, how)
    kl_BT = torch.zeros_like(batch.logp_BT)
    if batch.ref_logp_BT is not None:
        kl_BT = kl_estimate(batch.logp_BT, batch.ref_logp_BT, how.kl) * (ratio if how.kl_weighted else 1.0)
    each_BT = torch.where(mask_BT, how.kl_beta * kl_BT - gain_BT, 0.0)
    if how.aggregate == "completions":
        value = (each_BT / lengths_B1).sum() / batch.totals.completions
    elif how.aggregate == "constant":
        value = each_BT.sum() / (batch.totals.completions * batch.totals.limit)
    else:
        value = each_BT.sum() / batch.totals.tokens
    return Loss(value, (stopped & mask_BT).sum(), torch.where(mask_BT, kl_BT.detach(), 0.0).sum())


def kl_estimate(logp_BT: Tensor, ref_logp_BT: Tensor, estimator: str = "k3") -> Tensor:
    """Return the estimate of KL(π ‖ π_ref) at each token sampled from π, in nats."""
    gap_BT = ref_logp_BT - logp_BT
    if estimator == "k1":
        return -gap_BT
    return gap_BT.square() / 2 if estimator == "k2" else gap_BT.exp() - gap_BT - 1


def server_correction(gap_BT: Tensor, mask_BT: Tensor, how: OptimConfig) -> Tensor:
    """Return the weight of each token [B, T], or completion [B, 1], that a server sampled.

    ``gap_BT`` are the policy's log-probabilities less the server's.
    """
    gap_BT = torch.where(mask_BT, gap_BT, 0.0)
    if how.correction.startswith("completion"):
        gap_BT = gap_BT.sum(-1, keepdim=True)
    weight = gap_BT.exp()
    if how.correction.endswith("mask"):
        return weight.where(weight <= how.correction_max, 0.0)
    return weight.clamp(max=how.correction_max)


def likelihood(logp_BT: Tensor, mask_BT: Tensor, totals: Totals) -> Loss:
    """Return the loss of best-of-n supervised, the negative log-likelihood of chosen completions per token."""
    return Loss(-torch.where(mask_BT, logp_BT, 0.0).sum() / totals.tokens, *torch.zeros(2))
