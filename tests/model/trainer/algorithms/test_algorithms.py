"""Losses and their gradients."""

import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.algorithms import grpo, supervised

NAN = math.nan
rewards = st.one_of(st.floats(-10, 10), st.just(NAN))
groups = st.integers(2, 6).flatmap(
    lambda size: st.lists(st.lists(rewards, min_size=size, max_size=size), min_size=1, max_size=4)
)


def reference(group: list[float], std_floor: float = 0.0) -> list[float]:
    scored = [value for value in group if not math.isnan(value)]
    if len(scored) < 2 or max(scored) == min(scored):
        return [0.0] * len(group)
    mean, std = statistics.fmean(scored), statistics.stdev(scored)
    return [0.0 if math.isnan(value) else (value - mean) / (max(std, std_floor) + 1e-4) for value in group]


def advantages(matrix: list[list[float]], std_floor: float = 0.0) -> list[list[float]]:
    rows: list[list[float]] = grpo.advantages(torch.tensor(matrix, dtype=torch.float64), std_floor).tolist()
    return rows


@given(groups, st.sampled_from([0.0, 0.03, 1.0]))
def test_advantages_equal_formula(matrix: list[list[float]], std_floor: float) -> None:
    for got, group in zip(advantages(matrix, std_floor), matrix, strict=True):
        assert got == pytest.approx(reference(group, std_floor), rel=1e-9, abs=1e-9)


def test_advantages_floor_keeps_judge_noise_small() -> None:
    noise = [0.50, 0.51, 0.49, 0.50]
    assert max(advantages([noise])[0]) == pytest.approx(1.21, abs=0.01)
    assert max(advantages([noise], 0.03)[0]) == pytest.approx(0.01 / 0.0301)
    signal = [0.0, 1.0, 0.2, 0.9]
    assert advantages([signal], 0.03) == advantages([signal])


@pytest.mark.parametrize(
    ("overlong", "counted"),
    [
        ("keep", [1.0, 0.5, 0.8, NAN]),
        ("mask", [NAN, 0.5, 0.8, NAN]),
        ("zero", [0.0, 0.5, 0.8, NAN]),
        ("soft", [0.0, 0.5, 0.3, NAN]),
    ],
)
def test_counted_rewards_of_truncated_completions(overlong: str, counted: list[float]) -> None:
    """The first is cut off at 10 tokens, the third is half way through the last fifth."""
    raw = torch.tensor([[1.0, 0.5, 0.8, NAN]], dtype=torch.float64)
    cut_off, lengths = torch.tensor([True, False, False, True]), torch.tensor([10, 8, 9, 10])
    rewards = grpo.counted_rewards(raw, cut_off, lengths, 10, overlong)
    assert rewards[0].tolist() == pytest.approx(counted, nan_ok=True)
    assert grpo.advantages(rewards)[0].tolist() == pytest.approx(reference(counted))


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ratios from 1/3 to 3, advantages of both signs, and padding that holds garbage."""
    generator = torch.Generator().manual_seed(1)
    old = -3 * torch.rand(6, 7, generator=generator, dtype=torch.float64)
    logp = (old + 2.2 * (torch.rand(6, 7, generator=generator, dtype=torch.float64) - 0.5)).requires_grad_()
    ref = old + torch.rand(6, 7, generator=generator, dtype=torch.float64) - 0.5
    gains = torch.tensor([1.5, -1.5, 0.0, 0.7, -0.2, -3.0], dtype=torch.float64)
    mask = torch.arange(7) < torch.tensor([7, 3, 5, 1, 2, 6]).unsqueeze(-1)
    return logp, torch.where(mask, old, torch.inf), gains, mask, ref


def test_loss_and_gradient_equal_formula() -> None:
    for beta in [0.0, 0.04]:
        logp, old, gains, mask, ref = batch()
        tokens = int(mask.sum())
        plain, clipped = [], 0
        for i in range(6):
            for t in range(7):
                if mask[i, t]:
                    ratio = torch.exp(logp[i, t] - old[i, t])
                    bounded = min(
                        max(ratio, torch.tensor(0.8, dtype=ratio.dtype)), torch.tensor(1.28, dtype=ratio.dtype)
                    )
                    clipped += bool(bounded * gains[i] < ratio * gains[i])
                    x = ref[i, t] - logp[i, t]
                    plain.append(-min(ratio * gains[i], bounded * gains[i]) + beta * (torch.exp(x) - x - 1))
        (expected,) = torch.autograd.grad(torch.stack(plain).sum() / tokens, logp)
        result = grpo.loss(logp, old, gains, mask, tokens=tokens, kl_beta=beta, ref_logp_BT=ref if beta else None)
        (got,) = torch.autograd.grad(result.value, logp)
        assert result.value.item() == pytest.approx(torch.stack(plain).sum().item() / tokens, rel=1e-12)
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=0)
        assert int(result.clipped) == clipped > 0
        assert not got[~mask].any()


def test_loss_of_micro_batches_adds_up() -> None:
    logp, old, gains, mask, _ = batch()
    tokens = int(mask.sum())
    whole = grpo.loss(logp, old, gains, mask, tokens=tokens).value
    parts = [grpo.loss(logp[i], old[i], gains[i], mask[i], tokens=tokens).value for i in torch.arange(6).split(4)]
    assert torch.stack(parts).sum().item() == pytest.approx(whole.item(), rel=1e-12)


def test_advantages_are_divided_by_the_deviation_of_the_pool() -> None:
    rewards = torch.tensor([[0.0, 1.0], [0.4, 0.6], [10.0, 30.0], [0.5, 0.5], [math.nan, 2.0]], dtype=torch.float64)
    pools = torch.tensor([0, 0, 1, 0, 1])
    found = grpo.advantages(rewards, 0.0, pools)
    first = math.sqrt((0.5 + 0.02 + 0.0) / 3) + grpo.EPS
    assert found[0].tolist() == pytest.approx([-0.5 / first, 0.5 / first])
    assert found[1].tolist() == pytest.approx([-0.1 / first, 0.1 / first])
    assert found[2].tolist() == pytest.approx([-10 / (math.sqrt(200) + grpo.EPS), 10 / (math.sqrt(200) + grpo.EPS)])
    assert found[3:].abs().max() == 0
    alone = grpo.advantages(rewards, 0.0, torch.arange(5))
    torch.testing.assert_close(alone, grpo.advantages(rewards))


def test_loss_weights_tokens_of_a_server_by_their_probability() -> None:
    logp, old, gains, mask, _ = batch()
    tokens = int(mask.sum())
    plain = grpo.loss(logp, old, gains, mask, tokens=tokens)
    same = grpo.loss(logp, old, gains, mask, tokens=tokens, sampled_logp_BT=old)
    assert same.value.item() == plain.value.item()
    half = grpo.loss(logp, old, gains, mask, tokens=tokens, sampled_logp_BT=old + math.log(2))
    assert half.value.item() == pytest.approx(plain.value.item() / 2, rel=1e-12)
    capped = grpo.loss(logp, old, gains, mask, tokens=tokens, sampled_logp_BT=old - 5)
    assert capped.value.item() == pytest.approx(plain.value.item() * grpo.MAX_CORRECTION, rel=1e-12)


def test_loss_is_the_mean_over_tokens_in_parts_as_a_whole() -> None:
    logp = torch.tensor([[-1.0, -2.0, -9.0], [-3.0, -9.0, -9.0]], requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    whole = supervised.loss(logp, mask, tokens=3)
    assert whole.value.item() == 2.0
    parts = [supervised.loss(logp[i : i + 1], mask[i : i + 1], tokens=3).value for i in range(2)]
    torch.testing.assert_close(torch.stack(parts).sum(), whole.value)
    torch.autograd.backward(whole.value)
    assert logp.grad is not None
    torch.testing.assert_close(logp.grad, torch.where(mask, -1 / 3, 0.0))
