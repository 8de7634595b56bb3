"""Many continuations of several token prefixes in one key-value cache: each prefix is computed and stored once.

A row holds a prefix and, one after the other, all its continuations; the attention mask lets each attend to the prefix
and to itself, and its positions continue those of the prefix ("tree attention", SpecInfer, arXiv 2305.09781). The
prefixes are computed first and without a mask: all in one pass takes longer (docs/judging-speed.md). Rows should be of
similar length, since shorter ones are padded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers.cache_utils import Cache, DynamicLayer

SHARED, PADDING = -1, -2
"""Owners of the tokens of a prefix, and of those that fill a row up."""

BranchId = tuple[int, int]  # the row, and a number of 0 or more that identifies the branch within it


def shared_length(rows: list[list[int]]) -> int:
    """Return how many first tokens all rows have in common, leaving each at least one; 0 for a single row."""
    if len(rows) < 2:
        return 0
    low, high = min(rows), max(rows)  # in lexicographic order: what these two share, all share
    common = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    return min(common, min(map(len, rows)) - 1)


class PrefixTree:
    """Prefixes and their continuations (branches). ``_owners`` [B, C] has the branch of each cached token."""

    def __init__(self, model: Any, prefixes: list[list[int]]) -> None:
        self._model = model
        self._cache = Cache(layer_class_to_replicate=_Layer)
        self._starts = [len(prefix) for prefix in prefixes]
        self._width = max(self._starts)
        owners = [torch.full((start,), SHARED) for start in self._starts]
        self._owners = pad_sequence(owners, batch_first=True, padding_value=PADDING)
        self._lengths: dict[BranchId, int] = defaultdict(int)
        ids = pad_sequence([torch.tensor(prefix, dtype=torch.long) for prefix in prefixes], batch_first=True)
        if self._width:  # the padding is at the end, where nothing attends to it
            model.base_model(input_ids=ids.to(model.device), past_key_values=self._cache, use_cache=True)

    def extend(self, tokens: dict[BranchId, list[int]]) -> torch.Tensor:
        """Append tokens to new or existing branches; return the logits after each, float32 on the CPU [N, V]."""
        counts: Counter[int] = Counter()
        slots: dict[BranchId, int] = {}  # the k-th branches of all rows share slot k, and end in the same column
        widths: dict[int, int] = defaultdict(int)
        for (row, branch), new in tokens.items():
            slots[row, branch] = slot = counts[row]
            counts[row] += 1
            widths[slot] = max(widths[slot], len(new))
        ends = torch.tensor(list(widths.values())).cumsum(0)
        ids = torch.zeros((len(self._starts), int(ends[-1])), dtype=torch.long)
        owners, positions = torch.full_like(ids, PADDING), torch.zeros_like(ids)
        for (row, branch), new in tokens.items():
            end = int(ends[slots[row, branch]])
            span = slice(end - len(new), end)
            start = self._starts[row] + self._lengths[row, branch]
            ids[row, span] = torch.tensor(new)
            owners[row, span] = branch
            positions[row, span] = torch.arange(start, start + len(new))
            self._lengths[row, branch] += len(new)
        cached = self._owners.shape[1]
        self._owners = torch.cat([self._owners, owners], dim=1)
        device, alone = self._model.device, cached == 0 and len(tokens) == 1 == len(self._starts)
        mask = None if alone else tree_mask(self._owners, cached, self._model.dtype).to(device)
        output = self._model(
            input_ids=ids.to(device),
            position_ids=positions.to(device),
            attention_mask=mask,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=(ends - 1).to(device),
        )
        logits: torch.Tensor = output.logits[[row for row, _ in tokens], list(slots.values())]
        return logits.float().cpu()

    def prune(self) -> None:
        """Remove all branches; the prefixes stay."""
        self._owners = self._owners[:, : self._width]
        self._lengths.clear()
        for layer in self._cache.layers:
            layer.length = self._width


def tree_mask(owners: torch.Tensor, cached: int, dtype: torch.dtype) -> torch.Tensor:
    """Return the additive mask [B, 1, Q, C]: 0 where a query may attend (padding to padding), -inf elsewhere.

    A token attends to the prefix and to its own branch before it.

    ``owners`` is the branch of each token, `SHARED` or `PADDING` [B, C]; ``cached`` tokens are before the queries.
    """
    columns = torch.arange(owners.shape[1])
    queries, keys = owners[:, cached:, None], owners[:, None, :]
    visible = ((keys == SHARED) | (keys == queries)) & (columns[None, :] <= columns[cached:, None])
    return torch.zeros(visible.shape, dtype=dtype).masked_fill_(~visible, float("-inf"))[:, None]


class _Layer(DynamicLayer):  # type: ignore[misc]
    """One layer's keys and values in a buffer with spare capacity, so that a step copies only the new ones."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer: torch.Tensor | None = None
        self.length = 0
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        new, start = torch.stack([key_states, value_states]), self.length
        self.length = end = start + new.shape[-2]
        if self.buffer is None or self.buffer.shape[-2] < end:
            wider = new.new_empty((*new.shape[:-2], end + max(256, end // 4), new.shape[-1]))
            if self.buffer is not None:
                wider[..., :start, :] = self.buffer[..., :start, :]
            self.buffer = wider
        self.buffer[..., start:end, :] = new
        keys, values = self.buffer[..., :end, :]
        return keys, values

    def get_seq_length(self, *_: Any) -> int:
        return self.length
