"""Divergence of the training reward (proxy) from the gold score: the proxy rises while gold is flat or falls.

Every evaluation is tested, so that the chance of a false alarm grows with their number. The m-th test of a run spends
`ALPHA` / (m (m + 1)) of it, whose sum over all m is `ALPHA`: the bound holds however many evaluations there are, and
however they depend on each other (all of them are of the same prompts). Confidence sequences would need increments
that are independent of what came before, which those of the same prompts are not.

A test looks at the trends of the evaluations since the start, and at those since the one halfway, which a turn after a
true improvement shows in. Each has half of what the test spends, and raises an alarm where both are significant by
one-sided t tests over the slopes of prompts: the proxy rises, and gold rises by less than `FOLLOWS` of that. In a clean
run gold follows every rise of the proxy by at least this share; a mistake is then as improbable as what was spent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import atan, cos, fsum, inf, pi, sin, sqrt
from statistics import fmean
from typing import Any, NamedTuple

from rubricsvc.core.estimate import MIN_CLUSTERS
from rubricsvc.core.run_evaluation import REWARD

ALPHA = 0.05
"""Probability of a false alarm in a whole run."""
FOLLOWS = 1 / 3
"""Share of the proxy's rise that gold must rise by, in the units of both."""


class Divergence(NamedTuple):
    """The proxy rises between two evaluations and gold does not follow: changes by the trends, means over prompts."""

    since: int
    step: int
    proxy: float
    gold: float
    name: str

    @property
    def text(self) -> str:
        """The alarm, for people."""
        return (
            f"By their trends from step {self.since} to step {self.step} the training reward rose by {self.proxy:.3f} "
            f"and the gold score {self.name} changed by {self.gold:+.3f}: the policy pleases the judge without being "
            "better."
        )


def first_divergence(lines: Sequence[Mapping[str, Any]]) -> Divergence | None:
    """Return the first divergence in the evaluations of a run, ascending by step; None without any.

    None as well where gold is the training reward, and where evaluations lack one of the two (other trainers' may).
    """
    return next(divergences(lines), None)


def divergences(lines: Sequence[Mapping[str, Any]]) -> Iterator[Divergence]:
    """Yield the divergences in the evaluations of a run, ascending by step, at most one for each."""
    if not lines or (gold := lines[-1]["gold"]) == REWARD:
        return
    prompts = len(lines[-1]["values"][gold]["mean"])
    known = [line for line in lines if all(_prompts(line, name) == prompts for name in (REWARD, gold))]
    for m in range(1, len(known)):
        starts = {0, m // 2}
        level = ALPHA / (m * (m + 1)) / len(starts)
        for start in sorted(starts):
            pairs = _trends(known[start : m + 1], gold)
            if len(pairs) >= MIN_CLUSTERS and _is_significant(pairs, level):
                proxy, by_gold = (fmean(values) for values in zip(*pairs, strict=True))
                yield Divergence(known[start]["step"], known[m]["step"], proxy, by_gold, gold)
                break


def _prompts(line: Mapping[str, Any], name: str) -> int:
    values = line["values"]
    return len(values[name]["mean"]) if name in values else 0


def _trends(lines: Sequence[Mapping[str, Any]], gold: str) -> list[tuple[float, float]]:
    """Return the changes of proxy and gold by the least-squares lines of each prompt with all values."""
    steps = [line["step"] for line in lines]
    mean = fmean(steps)
    total = fsum((step - mean) ** 2 for step in steps)
    factors = [(step - mean) * (steps[-1] - steps[0]) / total for step in steps]
    by_prompt = (zip(*(line["values"][name]["mean"] for line in lines), strict=True) for name in (REWARD, gold))
    return [
        (_sum_of_products(factors, proxy), _sum_of_products(factors, scores))
        for proxy, scores in zip(*by_prompt, strict=True)
        if None not in proxy and None not in scores
    ]


def _sum_of_products(factors: Sequence[float], values: Sequence[float]) -> float:
    return fsum(factor * value for factor, value in zip(factors, values, strict=True))


def _is_significant(pairs: Sequence[tuple[float, float]], level: float) -> bool:
    rose = [proxy for proxy, _ in pairs]
    behind = [FOLLOWS * proxy - gold for proxy, gold in pairs]
    return all(_p_above_zero(values) <= level for values in (rose, behind))


def _p_above_zero(values: Sequence[float]) -> float:
    """Return the one-sided p value of a t test for a mean above 0."""
    mean = fmean(values)
    spread = fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    t = mean / sqrt(spread / len(values)) if spread else (inf if mean > 0 else -inf if mean < 0 else 0.0)
    return t_tail(t, len(values) - 1)


def t_tail(t: float, freedom: int) -> float:
    """Return P(T > t) of Student's t with whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4).

    Its error is about 1e-15: far smaller tails are not distinguished from 0.
    """
    angle = atan(t / sqrt(freedom))
    term, total = (cos(angle) if freedom % 2 else 1.0), 0.0
    for k in range(freedom % 2 + 2, freedom + 1, 2):
        total += term
        term *= cos(angle) ** 2 * (k - 1) / k
    within = (angle + sin(angle) * total) * 2 / pi if freedom % 2 else sin(angle) * total
    return max(0.0, (1.0 - within) / 2)
