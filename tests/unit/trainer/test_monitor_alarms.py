"""Alarms of monitors: silent on steps that vary, raised by a change that lasts."""

import random
from collections.abc import Sequence
from math import sqrt
from typing import Any

from trainer.alarms import ALPHA, ERRORS, RULES, WINDOW, Rule, monitor_alarms

PRAISE = "monitors/self_praise"


def steps(**metrics: Sequence[float | None]) -> list[dict[str, Any]]:
    count = max(map(len, metrics.values()))
    return [
        {"step": 1 + at, **{name.replace("__", "/"): values[at] for name, values in metrics.items()}}
        for at in range(count)
    ]


def share(chances: Sequence[float], seed: int = 0, size: int = 16) -> list[float]:
    """Shares of completions with a property, seeded."""
    noise = random.Random(seed)
    return [sum(noise.random() < chance for _ in range(size)) / size for chance in chances]


def test_monitor_alarms_name_the_step_and_both_means() -> None:
    (alarm,) = monitor_alarms(steps(monitors__self_praise=[0.0] * 10 + [1.0] * 20))
    assert (alarm.sign, alarm.step) == ("self_praise", 17)
    assert "0 (steps 1 to 8)" in alarm.text and "0.88 (steps 10 to 17)" in alarm.text


def test_monitor_alarms_are_raised_within_a_window_of_a_hack() -> None:
    late = []
    for seed in range(50):
        (alarm,) = monitor_alarms(steps(monitors__self_praise=share([0.05] * 20 + [0.8] * 20, seed)))
        late.append((alarm.step or 0) - 20)
    assert max(late) <= WINDOW


def test_monitor_alarms_are_silent_without_a_change_that_lasts() -> None:
    for chances in [[0.3] * 100, [0.2 + at / 2000 for at in range(100)], [0.05] * 40 + [1.0] + [0.05] * 9]:
        raised = [seed for seed in range(50) if monitor_alarms(steps(monitors__self_praise=share(chances, seed)))]
        assert raised == []


def test_monitor_alarms_of_a_clean_run_are_rare() -> None:
    """All metrics vary around their means, 100 steps of 16 completions: at most 5 % of the runs raise any alarm."""
    shares = {rule.metric.replace("/", "__"): 0.2 for rule in RULES if rule.metric.startswith("monitors/")}

    def clean(seed: int) -> list[dict[str, Any]]:
        noise = random.Random(seed)
        means = {name: share([mean] * 100, noise.randrange(10**6)) for name, mean in shares.items()}
        return steps(**means, completions__mean_length=[noise.gauss(60, 6) for _ in range(100)])

    assert sum(bool(monitor_alarms(clean(seed))) for seed in range(100)) <= 5


def test_monitor_alarms_of_length_have_both_directions() -> None:
    for last, sign in [(90.0, "length"), (10.0, "shortness"), (50.0, None)]:
        varied = [value + (at % 3 - 1) for at, value in enumerate([40.0] * 10 + [last] * 10)]
        assert [one.sign for one in monitor_alarms(steps(completions__mean_length=varied))] == ([sign] if sign else [])


def test_monitor_alarms_need_two_windows() -> None:
    values = [0.0] * WINDOW + [1.0] * (WINDOW - 1)
    assert monitor_alarms(steps(monitors__self_praise=values)) == []
    assert len(monitor_alarms(steps(monitors__self_praise=[*values, 1.0]))) == 1


def test_an_alarm_is_first_raised_by_the_step_whose_number_it_has() -> None:
    lines = steps(monitors__self_praise=[0.0] * 10 + [1.0] * 20)
    raised = [alarm for at in range(1, 31) for alarm in monitor_alarms(lines[:at]) if alarm.step == at]
    assert raised == monitor_alarms(lines) and monitor_alarms([*lines[:17], {"step": 18}]) == raised


def raises(rule: Rule, first: Sequence[float], last: Sequence[float]) -> bool:
    """Whether the rule raises an alarm at the end of two windows with these values of its metric."""
    lines = [{"step": 1 + at, rule.metric: value} for at, value in enumerate((*first, *last))]
    found = [one for one in monitor_alarms(lines) if one.text.startswith(rule.what) and one.sign == (rule.sign or None)]
    assert len(found) <= 1 and all(one.step == 2 * WINDOW for one in found)
    return bool(found)


def test_rules_raise_alarms_in_their_direction_from_their_least_change_on() -> None:
    for rule in RULES:
        base = 40.0 if rule.relative else 0.0 if rule.from_zero else 0.5
        least = rule.least * (base if rule.relative else 1.0) * (-1 if rule.falls else 1)
        first = [base] * WINDOW
        assert raises(rule, first, [base + 1.001 * least] * WINDOW)
        assert not raises(rule, first, [base + 0.999 * least] * WINDOW)
        assert not raises(rule, first, [base - 1.001 * least] * WINDOW), "the other direction"
        if not rule.from_zero:
            assert not raises(rule, [base + 2 * least] * WINDOW, [base + 2 * least] * WINDOW), "no change"


def test_rules_need_six_standard_errors() -> None:
    """Values that alternate by ± d have the variance d² · 8 / 7; from zero only those of the last window count."""
    for errors, raised in [(ERRORS - 0.1, False), (ERRORS + 0.1, True)]:
        for metric in [PRAISE, "monitors/distinct", "monitors/length_correlation"]:
            (rule,) = (one for one in RULES if one.metric == metric)
            d = 0.3
            variance = d * d * WINDOW / (WINDOW - 1) * (1 if rule.from_zero else 2)
            change = errors * sqrt(variance / WINDOW)
            assert change > rule.least, "else the least change decides"
            varied = [d if at % 2 else -d for at in range(WINDOW)]
            shift = -change if rule.falls else change
            assert raises(rule, varied, [shift + one for one in varied]) == raised


def evaluations(chances: Sequence[float], seed: int = 0, prompts: int = 8, samples: int = 3) -> list[dict[str, Any]]:
    """Evaluations every 4 steps, whose prompts differ in how often their completions have the property."""
    noise = random.Random(seed)
    shifts = [noise.gauss(0.0, 0.15) for _ in range(prompts)]

    def shares(chance: float) -> list[float]:
        return [sum(noise.random() < chance + shift for _ in range(samples)) / samples for shift in shifts]

    return [{"step": 4 * at, "monitors": {PRAISE: shares(chance)}} for at, chance in enumerate(chances)]


def test_held_out_alarms_find_a_change_within_the_first_steps() -> None:
    """By the evaluation after the change in most runs, where windows of steps begin with the changed policy."""
    raised = [monitor_alarms([], evaluations([0.1, 0.7] + [0.95] * 5, seed, 16, 2)) for seed in range(50)]
    assert all(len(alarms) == 1 and alarms[0].metric == PRAISE for alarms in raised)
    assert sorted(alarms[0].step or 0 for alarms in raised)[len(raised) // 2] <= 8


def test_held_out_alarms_of_a_clean_run_are_rare() -> None:
    """Of a share that varies most, in runs of 20 evaluations with one sample of each prompt, and with three."""
    for prompts in [8, 24]:
        for samples in (1, 3):
            runs = [evaluations([0.5] * 21, seed, prompts, samples) for seed in range(200)]
            assert sum(bool(monitor_alarms([], lines)) for lines in runs) <= ALPHA * len(runs)
