"""Sampling tokens, and log-probabilities in chunks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from trainer.policies import tokens


def logits(rows: int = 5, vocabulary: int = 7, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(rows, 3, vocabulary, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("chunk", [1, 20, 10**6])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_token_logprobs_entropy_and_gradient(monkeypatch: pytest.MonkeyPatch, chunk: int, temperature: float) -> None:
    monkeypatch.setattr(tokens, "CHUNK", chunk)
    mine, plain = logits().requires_grad_(), logits().requires_grad_()
    ids = torch.arange(15).view(5, 3) % 7
    weights = torch.linspace(-1, 1, 15, dtype=torch.float64).view(5, 3)
    logp, entropy = tokens.token_logprobs(mine, ids, temperature)
    expected = (plain / temperature).log_softmax(-1)
    torch.testing.assert_close(logp, expected.gather(-1, ids.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(entropy, -(expected.exp() * expected).sum(-1))
    assert not entropy.requires_grad
    (logp * weights).sum().backward()
    (expected.gather(-1, ids.unsqueeze(-1)).squeeze(-1) * weights).sum().backward()
    torch.testing.assert_close(mine.grad, plain.grad)


@pytest.mark.parametrize("chunk", [1, 20, 10**6])
@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 0.3), (0.7, 0.9), (1.3, 0.999)])
def test_token_logprobs_over_nucleus_equals_brute_force(
    monkeypatch: pytest.MonkeyPatch, chunk: int, temperature: float, top_p: float
) -> None:
    """Values, entropy and gradient are those of the softmax over the kept tokens alone."""
    monkeypatch.setattr(tokens, "CHUNK", chunk)
    mine, plain = logits(vocabulary=11).requires_grad_(), logits(vocabulary=11).requires_grad_()
    drawn = [
        tokens.sample_tokens(mine[:, t].detach(), temperature, top_p, torch.Generator().manual_seed(t))
        for t in range(3)
    ]
    ids = torch.stack([token for token, _ in drawn], dim=1)
    nucleus = torch.stack([kept for _, kept in drawn if kept is not None], dim=1)
    weights = torch.linspace(-1, 1, 15, dtype=torch.float64).view(5, 3)
    logp, entropy = tokens.token_logprobs(mine, ids, temperature, nucleus)
    (logp * weights).sum().backward()
    logp = logp.detach()
    expected = torch.zeros((), dtype=torch.float64)
    for row in range(5):
        for place in range(3):
            scaled = plain[row, place] / temperature
            order = scaled.detach().softmax(-1).argsort(descending=True)
            mass = scaled.detach().softmax(-1)[order].cumsum(-1)
            kept = order[: int((mass < top_p).sum()) + 1]
            value = scaled[ids[row, place]] - scaled[kept].logsumexp(-1)
            shares = scaled[kept].detach().softmax(-1)
            assert float(logp[row, place]) == pytest.approx(float(value.detach()), abs=1e-9)
            assert float(entropy[row, place]) == pytest.approx(float(-(shares * shares.log()).sum()), abs=1e-9)
            expected = expected + value * weights[row, place]
    expected.backward()
    torch.testing.assert_close(mine.grad, plain.grad)


def test_token_logprobs_reads_bfloat16_in_float32() -> None:
    rough = logits().bfloat16().requires_grad_()
    ids = torch.zeros(5, 3, dtype=torch.long)
    logp, _ = tokens.token_logprobs(rough, ids, 1.0)
    assert logp.dtype == torch.float32
    torch.testing.assert_close(logp, rough.float().log_softmax(-1)[..., 0])
    logp.sum().backward()
    assert rough.grad is not None
    assert rough.grad.dtype == torch.bfloat16


def frequencies(row: Tensor, temperature: float, top_p: float, draws: int = 20_000) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    sampled, _ = tokens.sample_tokens(row.expand(draws, -1), temperature, top_p, generator)
    return torch.bincount(sampled, minlength=len(row)) / draws


def test_sample_tokens_follows_distribution() -> None:
    row = torch.tensor([2.0, -1.0, 0.5, -torch.inf, 1.0])
    observed = frequencies(row, temperature=0.8, top_p=1.0)
    assert observed[3] == 0
    torch.testing.assert_close(observed, (row / 0.8).softmax(-1), atol=0.015, rtol=0)  # 0.015 is over 4 sigma


@pytest.mark.parametrize(("top_p", "kept"), [(0.3, [1]), (0.5, [1]), (0.55, [1, 3]), (0.81, [1, 2, 3])])
def test_sample_tokens_nucleus_is_smallest_set_with_mass(top_p: float, kept: list[int]) -> None:
    probs = torch.tensor([0.05, 0.5, 0.2, 0.25])
    expected = torch.zeros(4)
    expected[kept] = probs[kept] / probs[kept].sum()
    torch.testing.assert_close(frequencies(probs.log(), 1.0, top_p), expected, atol=0.015, rtol=0)
