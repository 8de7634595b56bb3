"""Keys and values that grow in place: those of transformers' own cache, also after rows were chosen and shared."""

from __future__ import annotations

import copy

import torch
from transformers import LlamaConfig
from transformers.cache_utils import DynamicLayer

from trainer.policies.decoding import ROOM, GrowingLayer, growing_cache

CONFIG = LlamaConfig(num_hidden_layers=1)


def states(tokens: int, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, 3, tokens, 4)


@torch.no_grad()
def test_layer_holds_what_a_plain_layer_holds() -> None:
    growing, plain = GrowingLayer(), DynamicLayer()
    for tokens in [5, *[1] * (ROOM + 3), 7, 1]:
        keys, values = states(tokens), states(tokens)
        for ours, theirs in zip(growing.update(keys, values), plain.update(keys, values), strict=True):
            assert torch.equal(ours, theirs)
    assert growing.get_seq_length() == plain.get_seq_length() == ROOM + 16


@torch.no_grad()
def test_chosen_rows_share_nothing_with_those_that_they_come_from() -> None:
    cache = growing_cache(CONFIG)
    for tokens in (5, 1):
        cache.update(states(tokens), states(tokens), 0)
    chosen = copy.copy(cache)
    chosen.layers = [copy.copy(layer) for layer in cache.layers]
    chosen.batch_select_indices(torch.tensor([1, 0, 1]))
    before = cache.layers[0].keys.clone()
    chosen.update(states(1, batch=3), states(1, batch=3), 0)
    assert torch.equal(cache.layers[0].keys, before)
    cache.update(new := states(1), states(1), 0)
    assert torch.equal(cache.layers[0].keys, torch.cat([before, new], dim=-2))
