"""How far two rankings of the same things agree."""

import math
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from math import comb


def concordance(group: Sequence[tuple[float, float]]) -> tuple[int, int, int]:
    """Count the pairs of a group that two rankings order alike, with O(n log n) comparisons (Knight 1966, JASA 61).

    Return the concordant pairs less the discordant ones; the pairs that the first ranking does not tie; those that the
    second does not. Insertions into a list move O(n²) entries in all.
    """
    tied_first, tied_second, tied_both = (
        sum(comb(count, 2) for count in Counter(values).values())
        for values in ([a for a, _ in group], [x for _, x in group], group)
    )
    reversed_pairs, seen = 0, list[float]()
    for _, x in sorted(group):
        reversed_pairs += len(seen) - bisect_right(seen, x)
        insort(seen, x)
    pairs = comb(len(group), 2)
    net_concordant = pairs - tied_first - tied_second + tied_both - 2 * reversed_pairs
    return net_concordant, pairs - tied_first, pairs - tied_second


def tau_b(counts: Iterable[Sequence[int]]) -> float | None:
    """Return Kendall's tau-b over the pairs of things within groups, each with its counts as of `concordance`.

    1 is the same order, -1 the reverse. None where one of the two rankings has ties only.
    """
    net_concordant, in_first, in_second = map(sum, zip((0, 0, 0), *counts, strict=True))
    return net_concordant / math.sqrt(in_first * in_second) if in_first and in_second else None
