"""AdamW on master weights: torch's AdamW, without the updates that bfloat16 would lose."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rubricsvc.errors import InvalidError
from trainer.config import OptimConfig
from trainer.optim import MasterAdamW


def linear(dtype: torch.dtype = torch.float32, seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(8, 4).to(dtype)


def descend(model: nn.Linear, optimizer: MasterAdamW, steps: int = 3) -> list[float]:
    norms = []
    for step in range(steps):
        inputs = torch.linspace(-1, 1, 16, dtype=model.weight.dtype).view(2, 8) + step
        model(inputs).square().sum().backward()
        norms.append(optimizer.step(optimizer.learning_rate(step)))
    return norms


def test_step_accumulates_small_updates_in_bfloat16() -> None:
    model = linear(torch.bfloat16)
    before = model.weight.detach().clone()
    master = MasterAdamW(model, OptimConfig(lr=1e-5))
    descend(model, master, 1)
    unmoved = (model.weight == before).float().mean()
    assert unmoved > 0.9, "one step of 1e-5 is under the spacing of bfloat16"
    for _ in range(200):
        descend(model, master, 1)
    assert (model.weight == before).float().mean() < 0.5, "yet 200 such steps are not"


def test_step_is_adamw_with_clipped_gradients() -> None:
    model, plain = linear(), linear()
    config = OptimConfig(lr=1e-2, weight_decay=0.1, grad_clip=0.5, warmup_steps=2)
    optimizer = MasterAdamW(model, config)
    norms = descend(model, optimizer)
    adam = torch.optim.AdamW(plain.parameters(), lr=1e-2, weight_decay=0.1)
    for step, lr in enumerate([5e-3, 1e-2, 1e-2]):
        adam.param_groups[0]["lr"] = lr
        adam.zero_grad()
        plain(torch.linspace(-1, 1, 16).view(2, 8) + step).square().sum().backward()
        norm = nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        assert norms[step] == pytest.approx(float(norm), rel=1e-5)
        adam.step()
    torch.testing.assert_close(model.weight, plain.weight)


def test_step_refuses_non_finite_gradient() -> None:
    model = linear()
    optimizer = MasterAdamW(model, OptimConfig())
    before = model.weight.detach().clone()
    (model(torch.ones(1, 8)).sum() * torch.nan).backward()
    with pytest.raises(InvalidError, match="nan"):
        optimizer.step(1e-3)
    assert torch.equal(model.weight, before)
    assert descend(model, optimizer, 1)[0] > 0


def test_restore_continues_exactly() -> None:
    model = linear(torch.bfloat16)
    optimizer = MasterAdamW(model, OptimConfig(lr=1e-2))
    descend(model, optimizer)
    saved = {name: tensor.clone() for name, tensor in optimizer.state().items()}
    other = linear(torch.bfloat16, seed=1)
    resumed = MasterAdamW(other, OptimConfig(lr=1e-2))
    resumed.restore(saved)
    for each in (optimizer, resumed):
        descend(model if each is optimizer else other, each)
    assert torch.equal(model.weight, other.weight)
    assert all(torch.equal(tensor, resumed.state()[name]) for name, tensor in optimizer.state().items())
