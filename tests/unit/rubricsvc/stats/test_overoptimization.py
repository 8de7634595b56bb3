"""Gao's forms: known coefficients are recovered, with intervals that cover them, and distances come from the steps."""

from __future__ import annotations

import random
from math import log, sqrt
from typing import Any

import pytest

from rubricsvc.core.estimate import Estimate
from rubricsvc.stats.overoptimization import FORMS, changes, distances, fit, mean_changes

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
    d, top = found.peak, max((one.value or 0.0 for _, one in found.curve))
    expected = 3.0 if form == "best-of-n" else 2.718281828**5
    assert d == pytest.approx(expected, rel=1e-6)
    if form == "best-of-n":
        assert top == pytest.approx(3.0 * 0.15, rel=0.01)


@pytest.mark.parametrize("form", FORMS)
def test_fit_intervals_cover_the_coefficients(form: str) -> None:
    def covers(one: Estimate, value: float) -> bool:
        return one.low is not None and one.high is not None and one.low <= value <= one.high

    found = [fit(simulated(form, 0.3, 0.05, 0.1, seed), "gold", form) for seed in range(100)]
    assert all(sum(one is not None and covers(one.alpha, 0.3) for one in found) >= n for n in (88,))
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
