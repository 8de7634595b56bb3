"""The arithmetic of comparisons: who meets whom, and what each is worth after it.

Whoever is compared is a number, its place in an order that was shuffled before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil
from statistics import fmean

Pair = tuple[int, int]

ANCHORS = 2
"""How many members the parts of a group share."""


def meetings(count: int, opponents: int | None = None) -> list[Pair]:
    """Which of ``count`` meet: all of them, or each with ``opponents`` others (one more where that cannot be even).

    The design is a circulant graph: each meets those at the same distances around a circle, so that all meet equally
    many, and, from two opponents on, everybody is connected with everybody.
    """
    if opponents is None or opponents >= count - 1:
        return list(combinations(range(count), 2))
    distances = set(range(1, opponents // 2 + 1))
    if opponents % 2:
        distances.add(count // 2 if count % 2 == 0 else opponents // 2 + 1)
    met = {(place, (place + distance) % count) for place in range(count) for distance in distances}
    return sorted({(min(pair), max(pair)) for pair in met})


def parts(count: int, size: int) -> list[tuple[int, ...]]:
    """``count`` members in parts of at most ``size``. Where there are several, the first members are in all of them."""
    if count <= size:
        return [tuple(range(count))]
    shared = min(ANCHORS, size - 1)
    number = ceil((count - shared) / (size - shared))
    return [(*range(shared), *range(shared + part, count, number)) for part in range(number)]


def aligned(scores: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """The scores of several parts on one scale, in [0, 1]; each part's are given by member.

    A judge is stricter in one part than in another: each part's scores are moved by as much as brings the mean of the
    members that all parts share to its mean over the parts. A shared member gets the mean of its moved scores.
    """
    if not scores:
        return {}
    shared = set.intersection(*(set(part) for part in scores))
    means = [fmean(part[member] for member in sorted(shared)) for part in scores]
    common = fmean(means)
    moved: dict[int, list[float]] = {}
    for part, mean in zip(scores, means, strict=True):
        for member, score in part.items():
            moved.setdefault(member, []).append(min(1.0, max(0.0, score + (common - mean))))
    return {member: fmean(found) for member, found in moved.items()}


def standing(met: Sequence[tuple[float, int]], equals: int = 0) -> float | None:
    """The mean score of one in its pairs: (score in [0, 1], how many are the one met); each of ``equals`` is a tie.

    None where there is nobody to compare with.
    """
    weight = sum(number for _, number in met) + equals
    return (sum(score * number for score, number in met) + 0.5 * equals) / weight if weight else None


@dataclass(frozen=True, slots=True)
class RankedPair:
    """What a GenRM says of two: a score for each (1 to 5), and a ranking, 1 (the first is much better) to 6."""

    first: int
    second: int
    score_1: float
    score_2: float
    ranking: float


def genrm_compare(pairs: Iterable[RankedPair]) -> dict[int, float]:
    """The mean of each one's scores over its pairs (NeMo Gym, genrm_compare with its ``simple_tiebreaker``).

    Where both scores of a pair are equal, 3.5 - ranking is added to the first one's and taken from the second one's.
    """
    scores: dict[int, list[float]] = {}
    for pair in pairs:
        tie = 3.5 - pair.ranking if pair.score_1 == pair.score_2 else 0.0
        scores.setdefault(pair.first, []).append(pair.score_1 + tie)
        scores.setdefault(pair.second, []).append(pair.score_2 - tie)
    return {member: fmean(found) for member, found in scores.items()}


def top(scores: Mapping[int, float], n: int) -> dict[int, float]:
    """1 for the ``n`` best and 0 for the others (reward_hub, groupwise); who equals the last of them is one of them."""
    least = min(sorted(scores.values(), reverse=True)[:n], default=0.0)
    return {member: float(score >= least) for member, score in scores.items()}


def disagree(first: float, second: float) -> bool:
    """Whether the two orders of a pair name different winners; both scores are of the same one of the pair."""
    return (first - 0.5) * (second - 0.5) < 0
