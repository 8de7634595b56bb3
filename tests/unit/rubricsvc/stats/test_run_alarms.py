"""Alarms of a training run."""

from __future__ import annotations

from typing import Any

import pytest

from rubricsvc.stats.run_alarms import alarms, gap_growth


def evaluation(proxy: list[float | None], gold: list[float | None], name: str = "strong") -> dict[str, Any]:
    return {"gold": name, "values": {"reward": {"mean": proxy}, "strong": {"mean": gold}}}


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


def test_gap_growth_is_paired_by_prompt() -> None:
    gold: list[float | None] = [0.1, 0.2, 0.3, 0.4, 0.5, None]
    before = evaluation([0.1, 0.2, 0.3, 0.4, 0.5, 0.5], gold)
    after = evaluation([0.3, 0.4, 0.5, 0.6, 0.8, 0.9], gold)
    grown = gap_growth([before, after])
    assert grown is not None and grown.value == pytest.approx(0.22)
    assert grown.low is not None and grown.low > 0
    assert len(alarms([], [before, after])) == 1
    assert alarms([], [after, before]) == []
    assert gap_growth([before]) is None
    assert gap_growth([before, evaluation(gold, gold, "reward")]) is None


def test_gap_growth_of_an_evaluation_without_the_training_reward_is_none() -> None:
    whole = evaluation([0.1], [0.1])
    without = {"gold": "strong", "values": {"strong": {"mean": [0.5]}}}
    assert gap_growth([without, whole]) is gap_growth([whole, without]) is None
    assert alarms([], [whole, without]) == []
