"""Folding query heads into positions changes the shape of the sum and not the sum."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from trainer.policies.decoding import grouped_attention


def tensors(length: int, context: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 6, length, 8), (2, 2, context, 8), (2, 2, context, 8))
    query, key, value = (torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes)
    return query, key, value


@pytest.mark.parametrize(
    ("length", "context", "masked"), [(1, 7, True), (3, 7, True), (7, 7, True), (1, 7, False), (7, 7, False)]
)
def test_grouped_attention_equals_scaled_dot_product_attention(length: int, context: int, masked: bool) -> None:
    query, key, value = tensors(length, context)
    mask = torch.ones(2, 1, length, context, dtype=torch.bool).tril(context - length)
    mask[1, ..., :2] = False
    mask[1, 0, :, 0] |= ~mask[1, 0].any(-1)  # no row without anything to look at
    module = torch.nn.Module()
    module.num_key_value_groups = 3  # type: ignore[assignment]
    arguments = (module, query, key, value, mask if masked else None)
    expected, _ = sdpa_attention_forward(*arguments, scaling=0.3)
    got, _ = grouped_attention(*arguments, scaling=0.3)
    torch.testing.assert_close(got, expected)
    weights = torch.linspace(-1, 1, got.numel(), dtype=torch.float64).view_as(got)
    for mine, theirs in zip(
        torch.autograd.grad((got * weights).sum(), (query, key, value)),
        torch.autograd.grad((expected * weights).sum(), (query, key, value)),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)
