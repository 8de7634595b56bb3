"""Diversity of the completions of a prompt: distinct-n (1510.03055) and self-BLEU (1802.01886)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from math import exp, fsum, inf, log
from statistics import fmean

from rubricsvc.core.trajectory import distinct_share
from trainer.monitors.monitor import Observed, groups_of, runs_of, words

DISTINCT = 2
"""Words of the runs that distinct-n counts."""
_ORDERS = range(1, 5)
Runs = Counter[tuple[str, ...]]


def diversity(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return distinct-2 and self-BLEU, as means over prompts. Completions without words are left out."""
    groups = [[found for one in group if (found := words(one.text))] for group in groups_of(observed)]
    groups = [group for group in groups if len(group) > 1]
    if not groups:
        return {"distinct": None, "self_bleu": None}
    all_words = (list(chain.from_iterable(group)) for group in groups)
    return {
        "distinct": fmean(distinct_share(each, DISTINCT) for each in all_words),
        "self_bleu": fmean(map(self_bleu, groups)),
    }


def self_bleu(texts: Sequence[Sequence[str]]) -> float:
    """Return the mean BLEU-4 of each text (its words) with the others as its references.

    Orders above 1 are smoothed by adding one (Lin and Och 2004), which keeps short texts off 0.
    """
    orders = zip(*(_log_precisions(texts, n) for n in _ORDERS), strict=True)
    lengths = [len(text) for text in texts]
    return fmean(exp(fsum(each) / len(_ORDERS) + _brevity(lengths, at)) for at, each in enumerate(orders))


def _log_precisions(texts: Sequence[Sequence[str]], n: int) -> list[float]:
    """Return the logarithm of each text's clipped precision; counts are clipped at the most of another text."""
    counts = [Runs(runs_of(text, n)) for text in texts]
    first, second = Runs(), Runs()
    for run, count in chain.from_iterable(one.items() for one in counts):
        first[run], second[run] = sorted((count, first[run], second[run]), reverse=True)[:2]
    found = []
    for own in counts:
        matches = sum(min(count, second[run] if count == first[run] else first[run]) for run, count in own.items())
        total, smoothing = max(1, own.total()), int(n > 1)
        found.append(log((matches + smoothing) / (total + smoothing)) if matches + smoothing else -inf)
    return found


def _brevity(lengths: Sequence[int], at: int) -> float:
    """Return the logarithm of the brevity penalty, by the reference of the nearest length."""
    others = [*lengths[:at], *lengths[at + 1 :]]
    nearest = min(others, key=lambda other: (abs(other - lengths[at]), other))
    return min(0.0, 1.0 - nearest / lengths[at])
