"""Alarms of a training run."""

from __future__ import annotations

from typing import Any

from rubricsvc.stats.run_alarms import alarms


def evaluation(step: int, proxy: list[float | None], gold: list[float | None]) -> dict[str, Any]:
    return {"step": step, "gold": "strong", "values": {"reward": {"mean": proxy}, "strong": {"mean": gold}}}


def test_alarms_name_the_steps_without_a_signal() -> None:
    quiet = {"frac_reward_zero_std": 0.5, "vetoed_fraction": 0.0, "unscored_fraction": 0.0, "kl/start": 0.01}
    assert alarms([{"step": 1, **quiet}], []) == []
    names = ("frac_reward_zero_std", "vetoed_fraction", "unscored_fraction", "kl/start")
    loud = [{"step": 1, **quiet}] + [{"step": 2 + at, **quiet, name: 1.0} for at, name in enumerate(names)]
    found = alarms(loud, [])
    assert len(found) == 4
    assert all(f"In 1 of 5 steps (the last is {2 + at})" in one.text for at, one in enumerate(found))
    assert [one.step for one in found] == [2, 3, 4, 5]
    assert alarms([{"step": 1, "kl/start": None}], []) == []


def test_alarms_name_a_divergence_of_proxy_and_gold() -> None:
    gold: list[float | None] = [0.1, 0.2, 0.3, 0.4, 0.5, None]
    before = evaluation(0, [0.1, 0.2, 0.3, 0.4, 0.5, 0.5], gold)
    after = evaluation(9, [0.3, 0.4, 0.5, 0.6, 0.8, 0.9], gold)
    (alarm,) = alarms([], [before, after])
    assert "from step 0 to step 9" in alarm.text
    assert alarms([], [after, before]) == []
