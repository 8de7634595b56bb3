"""Alarms of a run in an environment, from histories both with and without a reason."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from rubricsvc.stats.run_alarms import tool_alarms

EPISODES = 16


def history(
    used: Sequence[float], valid: Sequence[float | None] | None = None, reported: Sequence[float] | None = None
) -> list[dict[str, Any]]:
    """Steps with shares as they are measured of a step's episodes, seeded."""
    noise = random.Random(0)

    def share(chance: float) -> float:
        return sum(noise.random() < chance for _ in range(EPISODES)) / EPISODES

    return [
        {
            "step": 1 + at,
            "tools/used_fraction": share(chance),
            "tools/valid_fraction": None
            if valid is not None and valid[at] is None
            else share((valid or used)[at] or 0),
            "tools/reported_fraction": share((reported or [0.9] * len(used))[at]),
        }
        for at, chance in enumerate(used)
    ]


STEADY = [0.9] * 40


def test_tool_alarms_are_silent_without_a_sustained_fall() -> None:
    for used in [
        STEADY,
        [0.1] * 40,
        [at / 40 for at in range(40)],
        [*[0.9] * 30, 0.0, *[0.9] * 9],
        [0.5] * 40,
        [0.9] * 9,
    ]:
        assert tool_alarms(history(used, valid=[0.9] * len(used))) == []


def test_tool_alarms_report_a_policy_that_stops_calling_its_tools() -> None:
    for used in [[0.9] * 20 + [0.1] * 10, [0.9 - at / 45 for at in range(40)]]:
        (alarm,) = tool_alarms(history(used, valid=[0.9] * len(used)))
        assert (alarm.sign, alarm.step) == ("no_call", len(used))


def test_tool_alarms_report_calls_that_get_worse() -> None:
    valid: list[float | None] = [0.95] * 20 + [0.5] * 10
    (alarm,) = tool_alarms(history([0.9] * 30, valid))
    assert (alarm.sign, alarm.step) == ("malformed", 30)
    assert tool_alarms(history([0.9] * 30, valid[::-1])) == [], "they get better"


def test_tool_alarms_report_steps_without_any_report() -> None:
    steps = history(STEADY, valid=list(STEADY), reported=[0.9] * 38 + [0.0] * 2)
    steps[-1]["completions/clipped_ratio"] = 1.0
    (alarm,) = tool_alarms(steps)
    assert (alarm.sign, alarm.step) == ("no_report", 40)
    assert "In 2 of 40 steps" in alarm.text and "in 1 of them" in alarm.text
