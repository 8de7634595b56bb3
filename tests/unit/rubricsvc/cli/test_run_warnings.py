"""What `runs start` prints at its end."""

from __future__ import annotations

from typing import Any

import pytest

from rubricsvc.cli.run_warnings import print_warnings
from rubricsvc.stats.run_alarms import alarms
from trainer.history import History


def test_print_warnings_prints_every_alarm_of_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    history = History(None)
    quiet: dict[str, Any] = {"frac_reward_zero_std": 0.0, "tools/reported_fraction": 1.0}
    loud = {"kl/start": 0.3, "unscored_fraction": 0.1, "monitors/errors": 1, "vetoed_fraction": 1.0}
    history.steps = [{"step": 1, **quiet}, {"step": 2, **quiet, **loud, "tools/reported_fraction": 0.0}]
    print_warnings(history)
    expected = [f"warning: {one.text}" for one in alarms(history.steps, [])]
    assert capsys.readouterr().err.splitlines() == expected
    assert len(expected) == 5
