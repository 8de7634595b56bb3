"""Sampling of completions from a local model: decoding, its cache and its attention."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from trainer.config import SamplingConfig
from trainer.policies.tokens import sample_tokens

if TYPE_CHECKING:
    from trainer.policies.policy import Policy


NAME = "grouped_sdpa"


def use_grouped_attention(model: Any) -> None:
    """Make ``model`` use grouped attention, where it would use plain scaled dot products."""
    if model.config._attn_implementation == "sdpa":
        AttentionInterface.register(NAME, grouped_attention)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        model.set_attn_implementation(NAME)


def separate_contexts(mask_BL: Tensor, context_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Return what the last T tokens see [B, 1, T, L], and their positions [B, T].

    They see what is before them and in the same context, and all that is before the T tokens. A position is the number
    of tokens that are seen: a context begins after the prompt.
    """
    length = context_BT.shape[1]
    same_BTT = (context_BT.unsqueeze(-1) == context_BT.unsqueeze(-2)).tril() & mask_BL[:, None, -length:]
    prompt_BTL = mask_BL[:, None, :-length].expand(-1, length, -1)
    seen_BTL = torch.cat([prompt_BTL, same_BTT], dim=-1)
    return seen_BTL.unsqueeze(1), (seen_BTL.sum(-1) - 1).clamp(min=0)


def grouped_attention(
    module: torch.nn.Module,
    query_BHTD: Tensor,
    key_BKLD: Tensor,
    value_BKLD: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute what ``sdpa_attention_forward`` computes, and call it where this shape does not apply.

    It does not apply without groups, with a mask for each head, or with implied causality instead of a mask. The result
    is [B, T, H, D].
    """
    batch, heads, length, size = query_BHTD.shape
    group = heads // key_BKLD.shape[1]
    plain = length == 1 if attention_mask is None else attention_mask.shape[1] == 1
    if group == 1 or not plain or kwargs.get("position_bias") is not None or kwargs.get("cache") is not None:
        output: tuple[Tensor, None] = sdpa_attention_forward(
            module, query_BHTD, key_BKLD, value_BKLD, attention_mask, **kwargs
        )
        return output
    mask = attention_mask if attention_mask is None or length == 1 else attention_mask.repeat(1, 1, group, 1)
    folded = torch.nn.functional.scaled_dot_product_attention(
        query_BHTD.reshape(batch, -1, group * length, size),
        key_BKLD,
        value_BKLD,
        attn_mask=mask,
        dropout_p=kwargs.get("dropout", 0.0),
        scale=kwargs.get("scaling"),
    )
    return folded.reshape(batch, heads, length, -1).transpose(1, 2).contiguous(), None


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


@dataclass(frozen=True)
class Sampled:
    """Sampled tokens [B, N], padded on the right, their mask, and their nuclei where tokens were left out."""

    ids_BN: Tensor
    mask_BN: Tensor
    unfinished_B: Tensor
    nucleus_BNK: Tensor | None

    @property
    def rows(self) -> list[list[int]]:
        """The tokens of each sequence, without padding."""
        return [ids[mask].tolist() for ids, mask in zip(self.ids_BN, self.mask_BN, strict=True)]


class Decoding:
    """Keys and values of a batch, and the logits of its next tokens [B, V]. The mask is True at a token."""

    def __init__(self, policy: Policy, cache: DynamicCache, mask_BC: Tensor, logits_BV: Tensor) -> None:
        self._policy, self._cache, self._mask_BC, self._logits_BV = policy, cache, mask_BC, logits_BV
        self._prompt_B = mask_BC.sum(-1)
        self._pending: Tensor | None = None  # sampled tokens [B, 1] whose keys and values are not computed yet

    def sample(self, sampling: SamplingConfig, generator: torch.Generator) -> Sampled:
        """Sample tokens until every sequence ends or has ``max_new_tokens`` of them."""
        ends, mask_B = self._policy.end_ids, torch.ones_like(self._mask_BC[:, 0])
        tokens: list[Tensor] = []
        masks: list[Tensor] = []
        nuclei: list[Tensor] = []
        for _ in range(sampling.max_new_tokens):
            if self._pending is not None:
                self._logits_BV = self._forward(self._pending)
            token_B, nucleus_BK = sample_tokens(self._logits_BV, sampling.temperature, sampling.top_p, generator)
            tokens.append(torch.where(mask_B, token_B, ends[0]))
            masks.append(mask_B)
            if nucleus_BK is not None:
                nuclei.append(nucleus_BK)
            self._pending = tokens[-1].unsqueeze(-1)
            self._mask_BC = torch.cat([self._mask_BC, mask_B.unsqueeze(-1)], dim=-1)
            mask_B = mask_B & ~torch.isin(token_B, ends)
            if not mask_B.any():
                break
        nucleus_BNK = torch.stack(nuclei, dim=1) if nuclei else None
        return Sampled(torch.stack(tokens, dim=-1), torch.stack(masks, dim=-1), mask_B, nucleus_BNK)

    @staticmethod
    def of(rows: Sequence[tuple[Decoding, int]]) -> Decoding:
        """Return a batch of sequences of other batches, each named by its place there.

        All of these have just been sampled from.
        """
        parts = [batch._select([place for _, place in group]) for batch, group in groupby(rows, lambda row: row[0])]
        first, *others = parts
        width = max(part._mask_BC.shape[1] for part in parts)
        caches = [part._cache for part in parts]
        for number, layer in enumerate(first._cache.layers if others else ()):
            layers = [cache.layers[number] for cache in caches]
            length = max(one.keys.shape[-2] for one in layers)
            layer.keys = torch.cat([_padded(one.keys, length, -2) for one in layers])
            layer.values = torch.cat([_padded(one.values, length, -2) for one in layers])
        mask_BC = torch.cat([_padded(part._mask_BC, width, -1) for part in parts])
        whole = Decoding(first._policy, first._cache, mask_BC, torch.cat([part._logits_BV for part in parts]))
        whole._prompt_B = torch.cat([part._prompt_B for part in parts])
        whole._pending = torch.cat([part._pending for part in parts if part._pending is not None])
        return whole

    def _select(self, rows: Sequence[int]) -> Decoding:
        """Return a batch of these sequences."""
        chosen = torch.tensor(rows, device=self._mask_BC.device)
        cache = copy.copy(self._cache)
        cache.layers = [copy.copy(layer) for layer in cache.layers]
        cache.batch_select_indices(chosen)
        selected = Decoding(self._policy, cache, self._mask_BC[chosen], self._logits_BV[chosen])
        selected._prompt_B = self._prompt_B[chosen]
        selected._pending = None if self._pending is None else self._pending[chosen]
        return selected

    def forget(self, rows: Sequence[int]) -> None:
        """Hide all tokens of these sequences but the prompt from those that follow."""
        prompt_BC = self._mask_BC.cumsum(-1) <= self._prompt_B.unsqueeze(-1)
        self._mask_BC[list(rows)] &= prompt_BC[list(rows)]

    def append(self, rows: Sequence[Sequence[int]]) -> None:
        """Extend each sequence by given tokens, at least one."""
        device = self._mask_BC.device
        ids = [torch.tensor(row, device=device) for row in rows]
        masks = [torch.ones_like(row, dtype=torch.bool) for row in ids]
        # on the left, so that the last column has the last token of every sequence
        ids_BN = pad_sequence(ids, batch_first=True, padding_side="left")
        mask_BN = pad_sequence(masks, batch_first=True, padding_side="left")
        self._mask_BC = torch.cat([self._mask_BC, mask_BN], dim=-1)
        if self._pending is not None:
            ids_BN = torch.cat([self._pending, ids_BN], dim=-1)
        self._pending = None
        self._logits_BV = self._forward(ids_BN)

    def _forward(self, ids_BN: Tensor) -> Tensor:
        return self._policy.forward(ids_BN, self._mask_BC, self._cache, keep=1).squeeze(1)


def _padded(part: Tensor, length: int, dim: int) -> Tensor:
    """Return a tensor with zeros at the beginning of a dimension, up to a length: tokens that the mask leaves out."""
    shape = list(part.shape)
    shape[dim] = length - part.shape[dim]
    return torch.cat([part.new_zeros(shape), part], dim=dim)
