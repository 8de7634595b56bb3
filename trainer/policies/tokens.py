"""From logits to tokens and back: sampling, and log-probabilities without a float32 copy of all logits.

Truncated sampling (``top_p < 1``) draws from another distribution than the model's softmax: the softmax restricted to
the nucleus S and divided by its mass. The log-probabilities here are of that distribution::

    log π_S(y) = log π(y) - log Σ_{v in S} π(v)        y in S

S is the nucleus of the policy *that sampled*, stored with the rollout, for every policy whose log-probability is
taken: the sampling policy, the policy after updates, and the reference. So all of them are distributions over the same
tokens, importance ratios start at exactly 1, and no sampled token can have probability 0. A nucleus recomputed from an
updated policy could exclude the sampled token (log-probability -inf, an infinite ratio); the full softmax would count
the mass of tokens that could not be sampled. Keeping the mask is also what DeepSeek-V3.2 does (arXiv 2512.02556).

Shapes in names: B completions, T tokens, N positions, V vocabulary, K = ceil(V / 8) bytes of a packed nucleus.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK = 2**23
"""Logits converted to float32 at a time (32 MiB)."""


def sample_tokens(
    logits_BV: Tensor, temperature: float, top_p: float, generator: torch.Generator
) -> tuple[Tensor, Tensor | None]:
    """Sample one token for each row, by inverting the cumulative distribution.

    The nucleus of ``top_p`` is the smallest set of most probable tokens whose mass reaches it (arXiv 1904.09751). One
    random number a row is drawn from ``generator``.

    Returns:
        Token ids [B], and the nucleus of each row [B, K] as packed bits, None where ``top_p`` is 1.
    """
    probs_BV = (logits_BV.float() / temperature).softmax(-1)
    if top_p >= 1.0:
        cdf_BV = probs_BV.cumsum(-1).double()
        return _invert(cdf_BV, cdf_BV[:, -1:], generator).clamp(max=cdf_BV.shape[-1] - 1).squeeze(-1), None
    probs_BV, order_BV = probs_BV.sort(-1, descending=True)
    cdf_BV = probs_BV.cumsum(-1).double()
    last_B1 = (cdf_BV < top_p).sum(-1, keepdim=True).clamp(max=cdf_BV.shape[-1] - 1)
    place_B1 = torch.minimum(_invert(cdf_BV, cdf_BV.gather(-1, last_B1), generator), last_B1)
    kept_BV = torch.arange(cdf_BV.shape[-1], device=cdf_BV.device) <= last_B1
    nucleus_BV = torch.zeros_like(kept_BV).scatter(-1, order_BV, kept_BV)
    return order_BV.gather(-1, place_B1).squeeze(-1), pack_mask(nucleus_BV)


def _invert(cdf_BV: Tensor, mass_B1: Tensor, generator: torch.Generator) -> Tensor:
    uniform_B1 = torch.rand(mass_B1.shape, generator=generator, dtype=torch.float64, device=mass_B1.device)
    # right=True: a token of probability 0 has no width in the cumulative distribution, and is never sampled
    return torch.searchsorted(cdf_BV, uniform_B1 * mass_B1, right=True)


def pack_mask(mask_BV: Tensor) -> Tensor:
    """Return a boolean mask [B, V] as bits [B, K] (uint8), the lowest bit first."""
    padded = torch.nn.functional.pad(mask_BV.to(torch.uint8), (0, -mask_BV.shape[-1] % 8))
    bits_BK8 = padded.view(len(padded), -1, 8) << _bits(mask_BV.device)
    return bits_BK8.sum(-1, dtype=torch.uint8)


def unpack_mask(packed_NK: Tensor, vocabulary: int) -> Tensor:
    """Return the boolean mask [N, V] that `pack_mask` packed."""
    return ((packed_NK.unsqueeze(-1) >> _bits(packed_NK.device)) & 1).flatten(-2)[:, :vocabulary].bool()


def _bits(device: torch.device) -> Tensor:
    return torch.arange(8, dtype=torch.uint8, device=device)


def token_logprobs(
    logits: Tensor, ids: Tensor, temperature: float, nucleus: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the log-probability of each token and the entropy of the distribution it was sampled from.

    The distribution is softmax(logits / temperature), restricted to the nucleus of `sample_tokens` and renormalised
    where there is one (see the module). A token outside its nucleus gets -inf.

    Args:
        logits: [..., V].
        ids: The tokens [...].
        temperature: What they were sampled at.
        nucleus: [..., K], or None.

    Returns:
        Log-probabilities and entropies, both [...] in nats; the entropies carry no gradient.
    """
    logp_N, entropy_N = _TokenLogprobs.apply(  # type: ignore[no-untyped-call]
        logits.flatten(0, -2), ids.flatten(), temperature, None if nucleus is None else nucleus.flatten(0, -2)
    )
    return logp_N.view_as(ids), entropy_N.view_as(ids)


class _TokenLogprobs(torch.autograd.Function):
    """Chunked log-softmax. A 49k vocabulary makes the logits the largest tensor of a step.

    They stay in the model's own type; the softmax is computed in float32 (float64 for float64 logits) over a few
    positions at a time, and computed again for the gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, logits_NV: Tensor, ids_N: Tensor, temperature: float, nucleus_NK: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        precise = torch.promote_types(logits_NV.dtype, torch.float32)
        logp_N = torch.empty(len(ids_N), dtype=precise, device=logits_NV.device)
        log_z_N, entropy_N = torch.empty_like(logp_N), torch.empty_like(logp_N)
        for at in _chunks(logits_NV):
            scaled = _scaled(logits_NV[at].to(precise), temperature, nucleus_NK, at)
            log_z_N[at] = scaled.logsumexp(-1)
            logp_N[at] = scaled.gather(-1, ids_N[at].unsqueeze(-1)).squeeze(-1) - log_z_N[at]
            probs = (scaled - log_z_N[at].unsqueeze(-1)).exp_()
            if nucleus_NK is not None:
                scaled.masked_fill_(scaled == -torch.inf, 0.0)  # 0 · -inf is not a number
            entropy_N[at] = log_z_N[at] - torch.linalg.vecdot(probs, scaled)
        ctx.save_for_backward(logits_NV, ids_N, log_z_N, nucleus_NK)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropy_N)
        return logp_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        """Return the gradient of the logits: (onehot - softmax over the nucleus) / temperature."""
        logits_NV, ids_N, log_z_N, nucleus_NK = ctx.saved_tensors
        scale_N = grads[0] / ctx.temperature
        grad_NV = torch.empty_like(logits_NV)
        for at in _chunks(logits_NV):
            scaled = _scaled(logits_NV[at].to(log_z_N.dtype), ctx.temperature, nucleus_NK, at)
            grad = (scaled - log_z_N[at].unsqueeze(-1)).exp_().mul_(-scale_N[at].unsqueeze(-1))
            grad.scatter_add_(-1, ids_N[at].unsqueeze(-1), scale_N[at].unsqueeze(-1))
            grad_NV[at] = grad
        return grad_NV, None, None, None


def _scaled(logits_nV: Tensor, temperature: float, nucleus_NK: Tensor | None, at: slice) -> Tensor:
    """Logits by temperature, -inf outside the nucleus."""
    scaled = logits_nV / temperature
    if nucleus_NK is None:
        return scaled
    return scaled.masked_fill_(~unpack_mask(nucleus_NK[at], scaled.shape[-1]), -torch.inf)


def _chunks(logits_NV: Tensor) -> list[slice]:
    positions, vocabulary = logits_NV.shape
    size = max(1, CHUNK // vocabulary)
    return [slice(start, start + size) for start in range(0, positions, size)]
