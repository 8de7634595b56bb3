"""Sequences that are being generated: a batch that is extended by sampled tokens, or by given ones.

Shapes in names: B sequences, C tokens so far (padded), N new tokens, V vocabulary, K bytes of a packed nucleus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

from trainer.config import SamplingConfig
from trainer.policies.tokens import sample_tokens

if TYPE_CHECKING:
    from trainer.policies.policy import Policy


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

    def keep(self, rows: Sequence[int]) -> None:
        """Keep only these sequences."""
        chosen = torch.tensor(rows, device=self._mask_BC.device)
        self._cache.batch_select_indices(chosen)
        self._mask_BC, self._logits_BV = self._mask_BC[chosen], self._logits_BV[chosen]
        self._pending = None if self._pending is None else self._pending[chosen]

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
