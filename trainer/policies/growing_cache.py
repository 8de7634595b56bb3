"""Keys and values that grow in place.

transformers copies all keys and values for each sampled token, which is a third of the time of a decoding step (16
sequences of 600 tokens, SmolLM2-135M on a CPU). Here a layer has room for more tokens, and is copied when it is full.

Shapes in names: B batch, K key heads, T new tokens, L all tokens, D head size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

ROOM = 64
"""Tokens that a layer grows by."""


class GrowingLayer(DynamicLayer):  # type: ignore[misc]  # transformers has no types for it
    """A layer whose ``keys`` and ``values`` are views of buffers with room after them.

    Where other tensors are assigned to ``keys`` and ``values``, as by a selection of rows, they are copied at the next
    token. With gradients it is a plain layer, since what is written in place has no derivative.
    """

    keys: Tensor
    values: Tensor
    _buffers: tuple[Tensor, Tensor]
    _views: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)

    def update(self, key_BKTD: Tensor, value_BKTD: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append the keys and values of new tokens; return all of them [B, K, L, D]."""
        before, length = self.get_seq_length(), self.get_seq_length() + key_BKTD.shape[-2]
        if torch.is_grad_enabled() or not before:
            appended: tuple[Tensor, Tensor] = super().update(key_BKTD, value_BKTD, *args, **kwargs)
            return appended
        is_own = self.keys is self._views[0] and self.values is self._views[1]
        if not is_own or length > self._buffers[0].shape[-2]:
            self._buffers = (_with_room(self.keys, length), _with_room(self.values, length))
        keys, values = self._buffers
        keys[..., before:length, :], values[..., before:length, :] = key_BKTD, value_BKTD
        views = keys[..., :length, :], values[..., :length, :]
        self.keys, self.values = self._views = views
        return views


def growing_cache(config: Any) -> DynamicCache:
    """Return an empty cache for a model, whose layers of full attention grow in place."""
    cache = DynamicCache(config=config)
    cache.layers = [GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def _with_room(states: Tensor, length: int) -> Tensor:
    """Return a copy of states [B, K, L, D] with room for ``length`` tokens and some more."""
    grown = states.new_empty((*states.shape[:-2], length + ROOM, states.shape[-1]))
    grown[..., : states.shape[-2], :] = states
    return grown
