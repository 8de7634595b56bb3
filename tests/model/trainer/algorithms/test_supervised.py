"""Best-of-n supervised: which completions are learned, and the gradient of their likelihood."""

from __future__ import annotations

import torch

from trainer.algorithms import supervised


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
