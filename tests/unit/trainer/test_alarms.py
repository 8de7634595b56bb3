"""Alarms of a training run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from rubricsvc.services import lazy
from trainer.alarms import alarms, tool_alarms


def evaluation(step: int, proxy: list[float | None], gold: list[float | None]) -> dict[str, Any]:
    return {"step": step, "gold": "strong", "values": {"reward": {"mean": proxy}, "strong": {"mean": gold}}}


def test_alarms_name_the_steps_without_a_signal() -> None:
    quiet = {"frac_reward_zero_std": 0.5, "vetoed_fraction": 0.0, "unscored_fraction": 0.0, "kl/start": 0.01}
    assert alarms([{"step": 1, **quiet}], []) == []
    names = ("frac_reward_zero_std", "vetoed_fraction", "unscored_fraction", "completions/clipped_ratio", "kl/start")
    loud = [{"step": 1, **quiet}] + [{"step": 2 + at, **quiet, name: 1.0} for at, name in enumerate(names)]
    found = alarms(loud, [])
    assert len(found) == 5
    assert all(f"In 1 of 6 steps (the last is {2 + at})" in one.text for at, one in enumerate(found))
    assert [one.step for one in found] == [2, 3, 4, 5, 6]
    assert alarms([{"step": 1, "kl/start": None}], []) == []
    for clipped, advice in ((0.4, "temperature"), (0.6, "max_new_tokens")):
        raised = alarms([{"step": 1, "frac_reward_zero_std": 1.0, "completions/clipped_ratio": clipped}], [])
        text = " ".join(alarm.text for alarm in raised)
        assert [name for name in ("temperature", "max_new_tokens") if name in text] == [advice]


def test_alarms_name_a_divergence_of_proxy_and_gold() -> None:
    gold: list[float | None] = [0.1, 0.2, 0.3, 0.4, 0.5, None]
    before = evaluation(0, [0.1, 0.2, 0.3, 0.4, 0.5, 0.5], gold)
    after = evaluation(9, [0.3, 0.4, 0.5, 0.6, 0.8, 0.9], gold)
    (alarm,) = alarms([], [before, after])
    assert "from step 0 to step 9" in alarm.text
    assert alarms([], [after, before]) == []


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
    short, rising, once = ([0.9] * size for size in range(3, 12)), [at / 40 for at in range(40)], [*[0.9] * 30, 0.0]
    for used in [STEADY, [0.1] * 40, rising, [*once, *[0.9] * 9], [0.5] * 40, *short]:
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
    (alarm,) = tool_alarms(history([0.9] * 8, [0.98, 0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.58]))
    assert (alarm.sign, alarm.step) == ("malformed", 8)


def test_tool_alarms_report_steps_without_any_report() -> None:
    steps = history(STEADY, valid=list(STEADY), reported=[0.9] * 38 + [0.0] * 2)
    steps[-1]["completions/clipped_ratio"] = 1.0
    (alarm,) = tool_alarms(steps)
    assert (alarm.sign, alarm.step) == ("no_report", 40)
    assert "In 2 of 40 steps" in alarm.text and "in 1 of them" in alarm.text


def test_alarms_reach_reports_of_the_service() -> None:
    steps = history([0.9] * 30, [0.95] * 20 + [0.5] * 10)
    assert lazy.alarms(steps, ()) == alarms(steps, ()) != []
