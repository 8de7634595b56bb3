"""Credit below the response: a criterion's share of an advantage goes to the sentences that its verdict quotes.

With the advantage A_i of a completion and the parts P_k of its reward, of weights w_k (`advantages`) ::

    a_ki = g w_k (P_ki - mean_G P_k)       the share of criterion k; g such that Σ_k a_ki fits A_i best in the group
    A_it = A_i + λ Σ_k a_ki (T_i / |S_ki| · [t in S_ki] - 1)

S_ki are the tokens, of the T_i that the policy wrote, in sentences that the verdict quotes: all, if none. So the
mean of A_it is A_i. λ is ``optim.credit``. By turns: DRACO, arXiv 2609.04094; by tokens: Rubrics-to-Tokens, 2604.02795.

Shapes in names: G groups, M members of a group, B = G·M completions, T tokens, K parts of a reward.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trainer.algorithms.advantages import GroupRewards
from trainer.policies.rollouts import Rollouts

_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


def criterion_shares(batch: GroupRewards, advantages_GM: Tensor) -> Tensor:
    """Return a_ki [G, K, M]: 0 where a part has no value."""
    if batch.parts_GKM is None or batch.weights_GK is None:
        return advantages_GM.new_zeros(len(advantages_GM), 0, advantages_GM.shape[-1])
    parts_GKM = batch.parts_GKM.masked_fill(batch.rewards_GM.isnan()[:, None], torch.nan)
    centred_GKM = (parts_GKM - parts_GKM.nanmean(-1, keepdim=True)).nan_to_num(0.0) * batch.weights_GK.unsqueeze(-1)
    sum_GM = centred_GKM.sum(1)
    scale_G = (sum_GM * advantages_GM).sum(-1) / sum_GM.square().sum(-1).clamp(min=1e-12)
    return centred_GKM * scale_G[:, None, None]


def token_advantages(
    advantages_B: Tensor, batch: GroupRewards, rollouts: Rollouts, tokenizer: Any, credit: float
) -> Tensor:
    """Return A_it [B, T] of the advantages A_i [B] and the quotes of ``batch``, with λ = ``credit``."""
    shares_BK = criterion_shares(batch, advantages_B.cpu().view_as(batch.rewards_GM)).movedim(1, -1).flatten(0, 1)
    written_BT = rollouts.written_BT
    found_BT = advantages_B.unsqueeze(-1).repeat(1, written_BT.shape[1])
    for row, quotes in enumerate(batch.quotes):
        ids = rollouts.ids_BT[row][rollouts.mask_BT[row]].tolist()
        for place, texts in quotes.items():
            quoted_T = torch.zeros_like(written_BT[row])
            for first, end in sentences_of(tokenizer, ids, texts):
                quoted_T[first:end] = written_BT[row, first:end]
            if quoted_T.any():
                factor_T = quoted_T * (written_BT[row].sum() / quoted_T.sum()) - 1.0
                found_BT[row] += (credit * shares_BK[row, place] * factor_T).to(found_BT)
    return found_BT


def sentences_of(tokenizer: Any, ids: Sequence[int], quotes: Sequence[str]) -> list[tuple[int, int]]:
    """Return the first token, and that after the last, of the sentences with each quote's last occurrence."""
    text, found = tokenizer.decode(ids), []
    for quote in filter(None, quotes):
        if (at := text.rfind(quote)) < 0:
            continue
        start = max((one.end() for one in _END.finditer(text, 0, at)), default=0)
        after = _END.search(text, at + len(quote) - 1)
        bounds = range(len(ids) + 1)
        first = bisect_right(bounds, start, key=lambda number: len(tokenizer.decode(ids[:number]))) - 1
        end = after.start() if after else len(text)
        found.append((first, bisect_left(bounds, end, key=lambda number: len(tokenizer.decode(ids[:number])))))
    return found
