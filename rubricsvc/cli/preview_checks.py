"""The checks of a preview: has the reward a signal, what does it follow, and does gold follow it?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.preflight import PreflightCheck

if TYPE_CHECKING:
    from rubricsvc.stats.preview import Preview

MIN_SIGNAL = 0.25
MAX_TAU = 0.3


def preview_checks(seen: Preview | None, noise: float, *, warmed_up: bool, several: bool) -> Iterator[PreflightCheck]:
    """Yield the checks.

    Args:
        seen: The preview; None where no prompt has two samples with rewards.
        noise: Standard deviation of a reward if the judge is asked again.
        warmed_up: Whether the policy has learned the demonstrations of the run, if there are any.
        several: Whether a rubric has more than one criterion.
    """
    yield _signal(seen, noise, warmed_up)
    if seen is None:
        return
    yield from _correlations(seen)
    if several:
        yield _criteria(seen)
    yield _gold(seen)


def _signal(seen: Preview | None, noise: float, warmed_up: bool) -> PreflightCheck:
    if seen is None:
        passed, value = False, "no prompt has two samples with rewards"
    else:
        passed = seen.with_signal >= MIN_SIGNAL * seen.groups
        value = f"rewards of {seen.with_signal} of {seen.groups} prompts deviate by more than {noise:.4f}"
    advice = "raise sampling.group_size or sampling.temperature, or use criteria that tell completions apart"
    if not warmed_up:
        advice = "the policy has not learned its demonstrations yet; run this again after the warm-up"
    return PreflightCheck(
        name="signal",
        value=value,
        limit=f"a share of at least {MIN_SIGNAL:g}",
        passed=passed,
        refuses=warmed_up,
        advice="" if passed else advice,
    )


def _correlations(seen: Preview) -> Iterator[PreflightCheck]:
    """Yield a check of the reward's correlation with the length, and with the form of the text.

    All are tested at once: chance alone takes one of them beyond the limit in 5 % of preflights at most.
    """
    most = max(MAX_TAU, seen.by_chance)
    length = {name: one for name, one in seen.features.items() if name == "length"}
    form = {name: one for name, one in seen.features.items() if name != "length"}
    for name, values, advice in (
        ("length", length, "expect the length to change; add a criterion or a limit against it"),
        ("form", form, "expect more or less of it; look at the samples of the run"),
    ):
        order = sorted(values, key=lambda one: -abs(values[one].value or 0.0))
        beyond = [one for one in order if abs(values[one].value or 0.0) > most]
        yield PreflightCheck(
            name=name,
            value=", ".join(_tau(one, values[one]) for one in beyond or order[:1]) or "does not vary",
            limit=f"Kendall's tau within ±{most:.2f} (at least ±{MAX_TAU:g}, and what chance gives)",
            passed=not beyond,
            advice=advice if beyond else "",
        )


def _tau(name: str, one: Estimate) -> str:
    interval = f" [{one.low:.2f}, {one.high:.2f}]" if one.low is not None and one.high is not None else ""
    return f"{name} {one.value:.2f}{interval}"


def _criteria(seen: Preview) -> PreflightCheck:
    """Check that the reward follows more than one criterion."""
    top = sorted(seen.criteria.items(), key=lambda one: -abs(one[1].value or 0.0))
    passed = len(top) > 1 and abs(top[1][1].value or 0.0) > MAX_TAU / 3
    shown = ", ".join(f"{name} {one.value:.2f}" for name, one in top[:3])
    return PreflightCheck(
        name="criteria",
        value=f"Kendall's tau of the reward with {shown}" if top else "no criterion varies",
        limit="more than one criterion decides",
        passed=passed,
        advice="" if passed else "the reward is one criterion's: change weights or wording of the others",
    )


def _gold(seen: Preview) -> PreflightCheck:
    """Check that choosing by the reward does not lower the gold score."""
    last, first = seen.curve[-1], seen.curve[0]
    limit = "the interval of the change of gold is not below 0"
    reward = f"best of {last.n}: reward {last.reward - first.reward:+.3f}"
    gain = seen.gold_gain
    if gain is None or gain.value is None:
        advice = "name a judge that is not trained on, or checks, in [eval]"
        return PreflightCheck(name="gold", value=f"{reward}, no gold", limit=limit, passed=None, advice=advice)
    interval = f" [{gain.low:.3f}, {gain.high:.3f}]" if gain.low is not None and gain.high is not None else ""
    turn = f", falling from best of {seen.gold_turns_at} on" if seen.gold_turns_at else ""
    passed = gain.high is None or gain.high >= 0
    return PreflightCheck(
        name="gold",
        value=f"{reward}, gold {gain.value:+.3f}{interval}{turn}",
        limit=limit,
        passed=passed,
        refuses=True,
        advice="" if passed else "what the reward prefers, gold does not: change the rubric or the judge",
    )
