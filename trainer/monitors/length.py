"""Length: does the reward rise with it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum, sqrt
from statistics import fmean

from trainer.monitors.monitor import Observed, groups_of, words


def length(prompt: str, text: str) -> float:
    """Return the number of words."""
    return float(len(words(text)))


def shortness(prompt: str, text: str) -> float:
    """Return the number of words, negated."""
    return -length(prompt, text)


def length_correlation(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return Pearson's correlation of reward and words within prompts: of the differences to the means of groups."""
    pairs: list[tuple[float, float]] = []
    for group in groups_of(observed):
        known = [(one.reward, length(one.prompt, one.text)) for one in group if one.reward is not None]
        if known:
            reward, size = (fmean(values) for values in zip(*known, strict=True))
            pairs += [(one - reward, count - size) for one, count in known]
    squares = fsum(a * a for a, _ in pairs) * fsum(b * b for _, b in pairs)
    return {"length_correlation": fsum(a * b for a, b in pairs) / sqrt(squares) if squares > 0 else None}
