"""Divergence of the training reward (proxy) from the gold score: the proxy rises while gold is flat, or gold falls.

Every evaluation is tested, so that the chance of a false alarm grows with their number. The m-th test of a run spends
`ALPHA` / (m (m + 1)) of it, whose sum over all m is `ALPHA`: the bound holds however many evaluations there are, and
however they depend on each other (all of them are of the same prompts). Confidence sequences would need increments
that are independent of what came before, which those of the same prompts are not.

A test looks at the trends of the evaluations since the start, and at those since the one halfway, which a turn after a
true improvement shows in. One-sided t tests over the slopes of prompts raise an alarm where both of these are
significant: the proxy rises, and gold rises by less than `FOLLOWS` of that; or where it is significant that gold falls.
Each of the four has a quarter of what the test spends. In a clean run gold does not fall, and follows every rise of the
proxy by at least this share; a mistake is then as improbable as what was spent. Of a prompt whose gold is near
`CEILING` no more is expected than is left up to there.
"""

from collections.abc import Mapping, Sequence
from math import fsum, inf
from operator import mul
from statistics import fmean
from typing import Any, NamedTuple

from rubricsvc.core.estimate import MIN_CLUSTERS
from rubricsvc.schemas.runs import REWARD
from rubricsvc.stats.estimates import p_above_zero

ALPHA = 0.05  # probability of a false alarm in a whole run
FOLLOWS = 1 / 3  # share of the proxy's rise that gold must rise by, in the units of both
CEILING = 0.98  # gold that no prompt is expected to rise above, on a scale up to 1
MIN_SHARE = 0.5  # share of a window's evaluations in which a prompt must have both values
_ROUNDING = 1e-12


class _Trend(NamedTuple):
    """The changes of proxy and gold of a prompt over a window, by least-squares lines, and its mean gold."""

    proxy: float
    gold: float
    mean_gold: float


class Divergence(NamedTuple):
    """Between two evaluations gold does not follow the proxy, or falls: changes by the trends, means over prompts."""

    since: int
    step: int
    proxy: float
    gold: float
    name: str

    @property
    def text(self) -> str:
        """The alarm, for people."""
        verdict = "pleases the judge without being better" if self.proxy > 0 else "gets worse"
        return (
            f"By their trends from step {self.since} to step {self.step} the training reward changed by "
            f"{self.proxy:+.3f} and the gold score {self.name} by {self.gold:+.3f}: the policy {verdict}."
        )


def first_divergence(lines: Sequence[Mapping[str, Any]]) -> Divergence | None:
    """Return the first divergence in the evaluations of a run, ascending by step; None without any.

    None as well where evaluations lack one of the two (other trainers' may).
    """
    if not lines:
        return None
    gold = lines[-1]["gold"]
    prompts = len(lines[-1]["values"][gold]["mean"])
    counts = [[len(line["values"].get(name, {"mean": ()})["mean"]) for name in (REWARD, gold)] for line in lines]
    known = [line for line, of_line in zip(lines, counts, strict=True) if of_line == [prompts, prompts]]
    for m in range(1, len(known)):
        starts = {0, m // 2}
        level = ALPHA / (m * (m + 1)) / (2 * len(starts))
        for start in sorted(starts):
            trends = _trends(known[start : m + 1], gold)
            if len(trends) < MIN_CLUSTERS:
                continue
            top = CEILING if all(one.mean_gold <= 1 + _ROUNDING for one in trends) else inf
            behind = [min(FOLLOWS * one.proxy, max(0.0, top - one.mean_gold)) - one.gold for one in trends]
            rises, lags, falls = (
                p_above_zero(values) <= level
                for values in ([one.proxy for one in trends], behind, [-one.gold for one in trends])
            )
            if (rises and lags) or falls:
                proxy, by_gold = (fmean(one[place] for one in trends) for place in (0, 1))
                return Divergence(known[start]["step"], known[m]["step"], proxy, by_gold, gold)
    return None


def _trends(lines: Sequence[Mapping[str, Any]], gold: str) -> list[_Trend]:
    """Return the trends of the prompts with enough values, each over the evaluations in which it has both."""
    span = lines[-1]["step"] - lines[0]["step"]
    columns = [list(zip(*(line["values"][name]["mean"] for name in (REWARD, gold)), strict=True)) for line in lines]
    found, slopes = [], dict[tuple[float, ...], list[float]]()
    for pairs in zip(*columns, strict=True):
        known = [(line["step"], *pair) for line, pair in zip(lines, pairs, strict=True) if None not in pair]
        if len(known) >= max(2, MIN_SHARE * len(lines)):
            steps, proxy, scores = zip(*known, strict=True)
            if steps not in slopes:  # what values are multiplied by for the slope of their least-squares line
                mean = fmean(steps)
                total = fsum((one - mean) ** 2 for one in steps)
                slopes[steps] = [(one - mean) / total for one in steps]
            rise, of_gold = (span * fsum(map(mul, slopes[steps], values)) for values in (proxy, scores))
            found.append(_Trend(rise, of_gold, fmean(scores)))
    return found
