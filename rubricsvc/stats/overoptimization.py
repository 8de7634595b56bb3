"""Proxy and gold over the distance from the starting policy, d = sqrt(KL), and the forms of Gao et al. (2210.10760).

The change of a score since the start is fitted by R(d) = d (α - β d), their form for best-of-n, and by
R(d) = d (α - β log d), their form for reinforcement learning. Both are linear in α and β, so that the fit of the mean
is the mean of the fits of the prompts, and intervals are t intervals over prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, log, sqrt
from statistics import fmean
from typing import Any, NamedTuple

from rubricsvc.core.estimate import Estimate, ratio_estimate
from rubricsvc.stats.least_squares import solve
from rubricsvc.stats.policy_scores import over_prompts

FORMS: Mapping[str, Callable[[float], float]] = {"best-of-n": lambda d: d, "RL": log}
"""What β is multiplied with."""
PEAKS: Mapping[str, Callable[[float], float]] = {
    "best-of-n": lambda ratio: max(0.0, ratio / 2),
    "RL": lambda ratio: exp(min(ratio - 1, 50.0)),
}
"""Where R is largest, given α / β, for α and β > 0. Both rise with it."""
MIN_POINTS = 3
"""Evaluations away from the start that a fit needs."""


class Fit(NamedTuple):
    """A form fitted to a score, with 95 % intervals over prompts.

    ``peak`` is the distance at which R is largest, None unless α > 0 and β > 0; it has an interval where that of β
    excludes 0. ``curve`` has R at distances from the smallest to the largest that was measured.
    """

    score: str
    form: str
    alpha: Estimate
    beta: Estimate
    peak: Estimate | None
    curve: Sequence[tuple[float, Estimate]]

    @property
    def is_extrapolated(self) -> bool:
        """Whether the peak is outside of the distances that were measured: the form says so, and no evaluation."""
        if self.peak is None or self.peak.value is None:
            return False
        return not self.curve[0][0] <= self.peak.value <= self.curve[-1][0]


def distances(steps: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """Return sqrt(KL) of each evaluation, KL in nats a completion; None before it was measured.

    ``kl/start`` of a step is nats a token, of the policy before its update, that is after the steps before. It is
    multiplied with the mean length, and interpolated between the steps in which it was measured; after the last one its
    value is taken.
    """
    known = [
        (step["step"] - 1, max(0.0, step["kl/start"] * step["completions/mean_length"]))
        for step in steps
        if step.get("kl/start") is not None and step.get("completions/mean_length") is not None
    ]
    return [_interpolated(known, line["step"]) for line in lines]


def _interpolated(known: Sequence[tuple[int, float]], step: int) -> float | None:
    if step == 0:
        return 0.0
    before = max((one for one in known if one[0] <= step), default=None)
    after = min((one for one in known if one[0] >= step), default=None)
    if before is None:
        return None
    after = after or before
    span = after[0] - before[0]
    return sqrt(before[1] + (after[1] - before[1]) * ((step - before[0]) / span if span else 0.0))


def changes(
    at: Sequence[float | None], lines: Sequence[Mapping[str, Any]], score: str
) -> list[tuple[float, list[Any]]]:
    """Return distance and changes by prompt of each evaluation after the first whose distance is known and above 0."""
    start = lines[0]["values"][score]["mean"]
    return [
        (
            d,
            [
                None if a is None or b is None else a - b
                for a, b in zip(line["values"][score]["mean"], start, strict=True)
            ],
        )
        for d, line in zip(at[1:], lines[1:], strict=True)
        if d
    ]


def mean_changes(found: Sequence[tuple[float, list[Any]]]) -> list[tuple[float, Estimate]]:
    """Return the mean changes by distance, with 95 % intervals over prompts; first the start, which has none."""
    return [(0.0, Estimate(0.0)), *((d, over_prompts(values)) for d, values in sorted(found, key=lambda one: one[0]))]


def fit(found: Sequence[tuple[float, list[Any]]], score: str, form: str, points: int = 25) -> Fit | None:
    """Fit a form to the changes by prompt at distances; None with fewer than `MIN_POINTS` different ones.

    Prompts without a value at one of them are left out.
    """
    at = [d for d, _ in found]
    if len(set(at)) < MIN_POINTS:
        return None
    bent = [-d * FORMS[form](d) for d in at]
    whole = [values for values in zip(*(values for _, values in found), strict=True) if None not in values]
    by_prompt = [one for values in whole if (one := solve(at, bent, values)) is not None]
    alpha, beta = (over_prompts([each[n] for each in by_prompt]) for n in (0, 1))
    if alpha.value is None or beta.value is None:
        return None
    low, high = min(at), max(at)
    shown = [low + (high - low) * n / (points - 1) for n in range(points)]
    drawn = [(d, over_prompts([d * (a - b * FORMS[form](d)) for a, b in by_prompt])) for d in shown]
    return Fit(score, form, alpha, beta, _peak(form, by_prompt), drawn)


def _peak(form: str, by_prompt: Sequence[tuple[float, float]]) -> Estimate | None:
    """Return where R is largest, given α and β of each prompt; None where it rises or falls all along."""
    alphas, betas = zip(*by_prompt, strict=True)
    if fmean(alphas) <= 0 or fmean(betas) <= 0:
        return None
    ratio = ratio_estimate(alphas, betas)
    value, low, high = (None if one is None else PEAKS[form](one) for one in (ratio.value, ratio.low, ratio.high))
    return Estimate(value, low, high, null_reason=ratio.null_reason)
