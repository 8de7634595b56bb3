"""Divergence of proxy and gold: false alarms over whole clean runs, and power on hacked ones, by simulation."""

import random
from collections.abc import Callable
from math import sqrt
from typing import Any

import pytest

from trainer.divergence import ALPHA, FOLLOWS, first_divergence

EVALUATIONS = 20
Curve = Callable[[float], float]
"""The mean of a score over the part of the run that is done, 0 to 1."""


def line(step: int, proxy: list[float], gold: list[float | None]) -> dict[str, Any]:
    return {"step": step, "gold": "strong", "values": {"reward": {"mean": proxy}, "strong": {"mean": gold}}}


def run(seed: int, proxy: Curve, gold: Curve, prompts: int = 24, samples: int = 4) -> list[dict[str, Any]]:
    """Evaluations of a run: prompts differ in their level and in how fast they rise; samples add noise."""
    noise = random.Random(seed)
    levels = [(noise.gauss(0.4, 0.15), noise.gauss(0.4, 0.15)) for _ in range(prompts)]
    rates = [noise.gauss(1.0, 0.4) for _ in range(prompts)]

    def mean(level: float, rise: float) -> float:
        return min(1.0, max(0.0, noise.gauss(level + rise, 0.2 / sqrt(samples))))

    lines = []
    for at in range(EVALUATIONS + 1):
        done = at / EVALUATIONS
        values = [
            (mean(a, rate * proxy(done)), mean(b, rate * gold(done)))
            for (a, b), rate in zip(levels, rates, strict=True)
        ]
        lines.append(line(10 * at, [a for a, _ in values], [b for _, b in values]))
    return lines


CLEAN: dict[str, tuple[Curve, Curve]] = {
    "nothing is learned": (lambda done: 0.0, lambda done: 0.0),
    "gold follows": (lambda done: 0.3 * done, lambda done: 0.3 * done),
    "gold follows by the least share": (lambda done: 0.3 * done, lambda done: FOLLOWS * 0.3 * done),
    "a plateau": (lambda done: 0.3 * min(1.0, 3 * done), lambda done: 0.2 * min(1.0, 3 * done)),
    "gold alone": (lambda done: 0.0, lambda done: 0.2 * done),
    "gold is at its ceiling": (lambda done: 0.3 * done, lambda done: 2.0),
    "gold reaches its ceiling": (lambda done: 0.3 * done, lambda done: 3 * done),
    "gold follows up to its ceiling": (lambda done: 0.3 * done, lambda done: 0.6 + 0.3 * done),
}
HACKED: dict[str, tuple[Curve, Curve]] = {
    "gold is flat": (lambda done: 0.3 * done, lambda done: 0.0),
    "gold falls": (lambda done: 0.3 * done, lambda done: -0.15 * done),
    "gold turns": (lambda done: 0.4 * done, lambda done: 0.6 * done * (1 - done)),
    "both fall": (lambda done: -0.15 * done, lambda done: -0.15 * done),
    "gold falls from its ceiling": (lambda done: 0.3 * done, lambda done: 0.9 - 0.8 * done),
}


@pytest.mark.parametrize("name", CLEAN)
def test_false_alarms_over_a_clean_run_are_rare(name: str) -> None:
    alarms = sum(first_divergence(run(seed, *CLEAN[name])) is not None for seed in range(200))
    assert alarms <= ALPHA * 200


def test_divergence_of_a_hacked_run_is_found() -> None:
    for proxy, gold in HACKED.values():
        found = [first_divergence(run(seed, proxy, gold)) for seed in range(40)]
        steps = [one.step for one in found if one is not None]
        assert len(steps) >= 0.8 * len(found) and sum(steps) / len(steps) <= 10 * EVALUATIONS * 0.9


def test_divergence_says_what_changed() -> None:
    start = line(0, [0.2, 0.3, 0.4, 0.5, 0.6, 0.1], [0.5, 0.4, 0.3, 0.5, 0.6, None])
    later = line(9, [0.7, 0.8, 0.8, 0.9, 0.9, 0.9], [0.4, 0.3, 0.3, 0.4, 0.5, 0.5])
    found = first_divergence([start, later])
    assert found is not None and (found.since, found.step, found.name) == (0, 9, "strong")
    assert found.proxy == pytest.approx(0.42) and found.gold == pytest.approx(-0.08)
    assert first_divergence([later, start]) is None


def test_divergence_needs_an_independent_gold_score_and_prompts() -> None:
    start, later = line(0, [0.1] * 6, [0.5] * 6), line(9, [0.9] * 6, [0.5] * 6)
    assert first_divergence([start, later]) is not None
    assert first_divergence([]) is first_divergence([start]) is None
    rises, falls = (
        [{**one, "gold": "reward"} for one in pair] for pair in ((start, later), (later, {**start, "step": 18}))
    )
    assert first_divergence(rises) is None and first_divergence(falls) is not None
    assert first_divergence([start, {**later, "values": {"strong": {"mean": [0.5] * 6}}}]) is None
    assert first_divergence([line(0, [0.1] * 4, [0.5] * 4), line(9, [0.9] * 4, [0.5] * 4)]) is None
    assert first_divergence([line(0, [0.1], [0.5]), later]) is None


def test_gold_that_is_constant_at_its_ceiling_does_not_fall_by_rounding() -> None:
    for level in [0.985, 0.99, 0.999, 1.0]:
        lines = [line(7 * at, [0.1 + 0.03 * at] * 6, [level] * 6) for at in range(20)]
        assert first_divergence(lines) is None
