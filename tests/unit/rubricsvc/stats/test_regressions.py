"""What a policy lost of the regression suite."""

from __future__ import annotations

from typing import Any

from rubricsvc.stats.run_alarms import regression_alarm, regressions


def line(**failed: list[str]) -> dict[str, Any]:
    return {"regression": {name: {"tokens": 9, "failed": each, "text": "so"} for name, each in failed.items()}}


def test_regressions_compare_the_first_and_the_last_evaluation_with_the_suite() -> None:
    lines = [{}, line(a=[], b=["words-1"]), line(a=["x"], b=["x"]), line(a=["regex-1"], b=[], new=[]), {}]
    assert [(one.name, one.change) for one in regressions(lines)] == [("a", -1), ("b", 1)]
    assert regressions(lines[:2]) == regressions([]) == []


def test_regression_alarm_needs_two_more_lost_than_gained() -> None:
    start = line(a=[], b=[], c=["words-1"])
    alarm = regression_alarm([start, line(a=["words-1", "over its budget"], b=["regex-2"], c=["words-1"])])
    assert alarm is not None and "a (words-1, over its budget), b (regex-2)" in alarm.text
    assert regression_alarm([start, line(a=["words-1"], b=["regex-2"], c=[])]) is None
    assert regression_alarm([start, start]) is None
