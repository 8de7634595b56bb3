"""Preference pairs from the rewards of completions of one prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True, slots=True)
class Preference:
    """A pair of indices in the group; ``margin`` is the difference of their rewards."""

    chosen: int
    rejected: int
    margin: float


def preferences(rewards: Sequence[float], min_margin: float = 0.0) -> Iterator[Preference]:
    """Yield each pair of a group whose rewards differ by ``min_margin`` or more; ties are never pairs."""
    for one, other in combinations(range(len(rewards)), 2):
        chosen, rejected = (one, other) if rewards[one] >= rewards[other] else (other, one)
        margin = rewards[chosen] - rewards[rejected]
        if margin > 0 and margin >= min_margin:
            yield Preference(chosen, rejected, margin)
