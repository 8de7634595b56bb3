"""Diversity of the completions of a prompt: distinct-n (1510.03055) and self-BLEU (1802.01886)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from math import exp, inf, log
from statistics import fmean

from trainer.monitors.monitor import Observed, groups_of, runs_of, words

DISTINCT = 2
"""Words of the runs that distinct-n counts."""
FIRST_WORDS = 20
"""Words of each completion in which it counts them: longer texts repeat more."""
_ORDERS = range(1, 5)
Runs = Counter[tuple[str, ...]]


def diversity(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return distinct-2 and self-BLEU, as means over prompts with at least two completions with words.

    distinct-2 is of the first `FIRST_WORDS` words of completions with as many.
    """
    groups = [[found for one in group if (found := words(one.text))] for group in groups_of(observed)]
    alike = [self_bleu(group) for group in groups if len(group) > 1]
    begins = ([each[:FIRST_WORDS] for each in group if len(each) >= FIRST_WORDS] for group in groups)
    shares = [distinct(group) for group in begins if len(group) > 1]
    return {"distinct": fmean(shares) if shares else None, "self_bleu": fmean(alike) if alike else None}


def distinct(texts: Sequence[Sequence[str]]) -> float:
    """Return the share of different runs of two words among those of all texts (their words)."""
    runs = [run for text in texts for run in runs_of(text, DISTINCT)]
    return len(set(runs)) / len(runs)


def self_bleu(texts: Sequence[Sequence[str]]) -> float:
    """Return the mean BLEU-4 of each text (its words) with the others as its references.

    Orders above 1 are smoothed by adding one (Lin and Och 2004), which keeps short texts off 0. A text of fewer than
    four words has as many orders as words: copies of it have a BLEU of 1.
    """
    lengths = [len(text) for text in texts]
    by_text = zip(*(_log_precisions(texts, n) for n in _ORDERS), strict=True)
    return fmean(exp(fmean(each[: lengths[at]]) + _brevity(lengths, at)) for at, each in enumerate(by_text))


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
