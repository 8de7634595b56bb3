"""Gao's forms: known coefficients are recovered, with intervals that cover them, and distances come from the steps."""

from __future__ import annotations

import random
from math import exp, log, sqrt
from typing import Any

import pytest

from rubricsvc.core.estimate import Estimate
from rubricsvc.stats.overoptimization import FORMS, PEAKS, changes, distances, fit, mean_changes

AT = [0.5, 1.0, 2.0, 4.0, 6.0, 9.0]


def simulated(form: str, alpha: float, beta: float, noise: float, seed: int = 0) -> list[tuple[float, list[Any]]]:
    """Changes of 20 prompts, each with coefficients of its own."""
    chance = random.Random(seed)
    own = [(chance.gauss(alpha, noise), chance.gauss(beta, noise / 10)) for _ in range(20)]
    return [(d, [d * (a - b * FORMS[form](d)) + chance.gauss(0.0, noise) for a, b in own]) for d in AT]


@pytest.mark.parametrize("form", FORMS)
def test_fit_recovers_exact_coefficients(form: str) -> None:
    found = fit(simulated(form, 0.3, 0.05, 0.0), "gold", form)
    assert found is not None
    assert (found.alpha.value, found.beta.value) == (pytest.approx(0.3), pytest.approx(0.05))
    assert found.peak is not None and found.peak.low is not None and found.peak.high is not None
    expected = 3.0 if form == "best-of-n" else exp(5.0)
    for one in (found.peak.value, found.peak.low, found.peak.high):
        assert one == pytest.approx(expected, rel=1e-4)
    assert found.is_extrapolated == (form == "RL"), "9 is the largest distance"
    drawn = [(d, one.value) for d, one in found.curve]
    assert (drawn[0][0], drawn[-1][0]) == (AT[0], pytest.approx(AT[-1]))
    for d, value in drawn:
        assert value == pytest.approx(d * (0.3 - 0.05 * FORMS[form](d)))


@pytest.mark.parametrize("form", FORMS)
def test_fit_intervals_cover_the_coefficients(form: str) -> None:
    def covers(one: Estimate, value: float) -> bool:
        return one.low is not None and one.high is not None and one.low <= value <= one.high

    found = [fit(simulated(form, 0.3, 0.05, 0.1, seed), "gold", form) for seed in range(100)]
    assert sum(one is not None and covers(one.alpha, 0.3) for one in found) >= 88
    assert sum(one is not None and covers(one.beta, 0.05) for one in found) >= 88


def test_fit_needs_three_distances_and_has_a_peak_only_where_the_score_turns() -> None:
    assert fit(simulated("RL", 0.3, 0.05, 0.1)[:2], "gold", "RL") is None
    rising = fit(simulated("best-of-n", 0.3, -0.05, 0.0), "gold", "best-of-n")
    assert rising is not None and rising.peak is None
    some = [(d, [None, *values]) for d, values in simulated("RL", 0.3, 0.05, 0.0)]
    assert (one := fit(some, "gold", "RL")) is not None and one.alpha.value == pytest.approx(0.3)
    assert fit([(d, [None]) for d in AT], "gold", "RL") is None


def test_distances_are_interpolated_between_measurements() -> None:
    steps = [
        {"step": 1, "kl/start": 0.0, "completions/mean_length": 50.0},
        {"step": 2, "kl/start": None, "completions/mean_length": 50.0},
        {"step": 11, "kl/start": 0.02, "completions/mean_length": 50.0},
    ]
    lines = [{"step": step} for step in (0, 5, 10, 12)]
    assert distances(steps, lines) == [0.0, pytest.approx(sqrt(0.5)), pytest.approx(1.0), pytest.approx(1.0)]
    assert distances([], lines) == [0.0, None, None, None]


def test_changes_are_since_the_start_by_prompt() -> None:
    lines = [{"values": {"gold": {"mean": values}}} for values in ([0.1, 0.2, None], [0.3, None, 0.5], [0.4, 0.6, 0.1])]
    found = changes([0.0, None, 2.0], lines, "gold")
    assert found == [(2.0, [pytest.approx(0.3), pytest.approx(0.4), None])]
    (zero, start), (two, last) = mean_changes(found)
    assert (zero, start.value, two, last.value) == (0.0, 0.0, 2.0, pytest.approx(0.35))


def test_rl_form_uses_the_natural_logarithm() -> None:
    assert FORMS["RL"](2.0) == log(2.0)


@pytest.mark.parametrize("form", FORMS)
def test_peak_is_the_largest_value_of_its_form(form: str) -> None:
    """Of its own curve, and not of that of another sign or ratio."""
    alpha, beta = 0.4, 0.1

    def value(d: float) -> float:
        return d * (alpha - beta * FORMS[form](d))

    peak = PEAKS[form](alpha / beta)
    assert value(peak) > max(value(0.99 * peak), value(1.01 * peak), 0.0)


def test_peak_interval_covers_the_peak() -> None:
    found = [fit(simulated("best-of-n", 0.3, 0.05, 0.1, seed), "gold", "best-of-n") for seed in range(200)]
    peaks = [one.peak for one in found if one is not None and one.peak is not None]
    bounded = [one for one in peaks if one.low is not None and one.high is not None]
    assert len(bounded) >= 190
    assert 0.9 <= sum((one.low or 0.0) <= 3.0 <= (one.high or 0.0) for one in bounded) / len(bounded) <= 0.99


def test_peak_has_no_interval_where_the_score_may_rise_all_along() -> None:
    """Half of the prompts turn and half do not: β is not distinguishable from 0."""
    rising, falling = (simulated("best-of-n", 0.3, beta, 0.0) for beta in (-0.05, 0.06))
    both = [(d, one[:10] + other[:10]) for (d, one), (_, other) in zip(rising, falling, strict=True)]
    found = fit(both, "gold", "best-of-n")
    assert found is not None and found.peak is not None
    assert found.peak.value == pytest.approx(0.3 / 0.01) and found.is_extrapolated
    assert found.peak.low is found.peak.high is None and found.peak.null_reason


@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 0.05), (-0.3, 0.05), (0.3, -0.05), (-0.3, -0.05)])
def test_fit_keeps_the_signs_of_rising_and_falling_scores(alpha: float, beta: float) -> None:
    found = fit(simulated("RL", alpha, beta, 0.0), "gold", "RL")
    assert found is not None
    assert (found.alpha.value, found.beta.value) == (pytest.approx(alpha), pytest.approx(beta))
    assert (found.peak is not None) == (alpha > 0 and beta > 0)
