"""Which candidates have children: tournaments by score, or by novelty. Needs the extra ``judging``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rubricsvc.core.evolution import Candidate
from rubricsvc.stats.intervals import Floats

TOURNAMENT = 3
EXPLORATION = 0.25
"""Share of the tournaments that the most novel candidate wins."""
POOL = 10
"""Candidates of an island that may have children: the best ones."""


@dataclass(frozen=True)
class Parent:
    """A candidate that was scored on the whole search part; ``rewards`` [N] are those of the search part."""

    number: int
    candidate: Candidate
    score: float
    rewards: Floats


def best_first(pool: Sequence[Parent]) -> list[Parent]:
    """Return the candidates by falling score; of equal ones the older is first."""
    return sorted(pool, key=lambda one: (-one.score, one.number))


def tournament(random: np.random.Generator, pool: Sequence[Parent]) -> Parent:
    """Return the winner among a few candidates of the best ones: mostly the best, sometimes the most novel."""
    candidates = best_first(pool)[:POOL]
    places = random.choice(len(candidates), min(TOURNAMENT, len(candidates)), replace=False).tolist()
    drawn = [int(place) for place in places]
    if random.random() < EXPLORATION and len(candidates) > TOURNAMENT:
        novelty = novelties(candidates)
        return candidates[max(sorted(drawn), key=lambda place: novelty[place])]
    return candidates[min(drawn)]


def novelties(pool: Sequence[Parent]) -> list[float]:
    """Return one less the correlation of each candidate's rewards with those of the most similar other one."""
    rewards = np.array([np.nan_to_num(one.rewards, nan=float(np.nanmean(one.rewards))) for one in pool])
    centred = rewards - rewards.mean(1, keepdims=True)
    norms = np.linalg.norm(centred, axis=1)
    scaled = centred / np.where(norms > 0, norms, 1.0)[:, None]
    similar = scaled @ scaled.T
    np.fill_diagonal(similar, -1.0)
    return (1.0 - similar.max(1)).tolist() if len(pool) > 1 else [1.0]


def survivors(scored: Sequence[tuple[int, float]]) -> list[int]:
    """Return the better half (rounded up) of (number, score): those that are scored on the next, larger part."""
    ordered = sorted(scored, key=lambda one: (-one[1], one[0]))
    return sorted(number for number, _ in ordered[: (len(ordered) + 1) // 2])
