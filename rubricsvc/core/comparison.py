"""The arithmetic of comparisons: which members of a group are paired, and their values afterwards.

A member is its index in an order that was shuffled before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil
from statistics import fmean

Pair = tuple[int, int]

ANCHORS = 2
"""Number of members that all parts of a group share."""


def pairings(count: int, opponents: int | None = None) -> list[Pair]:
    """Return the pairs of ``count`` members: all, or ``opponents`` for each (one more where that cannot be even).

    The design is a circulant graph: each member is paired with those at the same distances around a circle, so that
    all have equally many pairs and, from two opponents on, the graph is connected.
    """
    if opponents is None or opponents >= count - 1:
        return list(combinations(range(count), 2))
    distances = set(range(1, opponents // 2 + 1))
    if opponents % 2:
        distances.add(count // 2 if count % 2 == 0 else opponents // 2 + 1)
    pairs = {(member, (member + distance) % count) for member in range(count) for distance in distances}
    return sorted({(min(pair), max(pair)) for pair in pairs})


def overlapping_parts(count: int, size: int) -> list[tuple[int, ...]]:
    """Return ``count`` members in parts of at most ``size``; several parts share the first `ANCHORS` members."""
    if count <= size:
        return [tuple(range(count))]
    shared = min(ANCHORS, size - 1)
    number = ceil((count - shared) / (size - shared))
    return [(*range(shared), *range(shared + part, count, number)) for part in range(number)]


def align_scores(scores: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the scores of several parts, given by member, on one scale in [0, 1].

    A judge may be stricter in one part than in another: each part's scores are shifted so that the mean of the shared
    members equals its mean over the parts. A shared member gets the mean of its shifted scores.
    """
    if not scores:
        return {}
    shared = set.intersection(*(set(part) for part in scores))
    means = [fmean(part[member] for member in sorted(shared)) for part in scores]
    common = fmean(means)
    shifted: dict[int, list[float]] = {}
    for part, mean in zip(scores, means, strict=True):
        for member, score in part.items():
            shifted.setdefault(member, []).append(min(1.0, max(0.0, score + (common - mean))))
    return {member: fmean(values) for member, values in shifted.items()}


def win_rate(pairs: Sequence[tuple[float, int]], ties: int = 0) -> float | None:
    """Return a member's mean score over its pairs, None without any; ``ties`` is the number of completions equal to it.

    A pair is a score in [0, 1] and the number of completions that the opponent stands for.
    """
    weight = sum(count for _, count in pairs) + ties
    return (sum(score * count for score, count in pairs) + 0.5 * ties) / weight if weight else None


@dataclass(frozen=True, slots=True)
class RankedPair:
    """A GenRM's reply on two members: a score (1 to 5) for each, and a ranking, 1 (the first is much better) to 6."""

    first: int
    second: int
    score_1: float
    score_2: float
    ranking: float


def genrm_compare(pairs: Iterable[RankedPair]) -> dict[int, float]:
    """Return each member's mean score over its pairs (NeMo Gym, genrm_compare with its ``simple_tiebreaker``).

    Where both scores of a pair are equal, 3.5 - ranking is added to the first and subtracted from the second.
    """
    scores: dict[int, list[float]] = {}
    for pair in pairs:
        tie = 3.5 - pair.ranking if pair.score_1 == pair.score_2 else 0.0
        scores.setdefault(pair.first, []).append(pair.score_1 + tie)
        scores.setdefault(pair.second, []).append(pair.score_2 - tie)
    return {member: fmean(values) for member, values in scores.items()}


def top_n(scores: Mapping[int, float], n: int) -> dict[int, float]:
    """Return 1 for the ``n`` best, and for ties with the last of them, and 0 for the others (reward_hub, groupwise)."""
    least = min(sorted(scores.values(), reverse=True)[:n], default=0.0)
    return {member: float(score >= least) for member, score in scores.items()}


def orders_disagree(first: float, second: float) -> bool:
    """Return whether the two orders of a pair have different winners; both scores are of the same member."""
    return (first - 0.5) * (second - 0.5) < 0
