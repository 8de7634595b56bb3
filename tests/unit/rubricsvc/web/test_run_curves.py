"""The curves that a report shows."""

from __future__ import annotations

from rubricsvc.web.charts import curves

STEPS = [
    {"step": 1, "reward": 0.1, "tools/calls": 0.5, "tools/calls/search": 0.5, "tools/valid_fraction": None},
    {"step": 2, "reward": 0.2, "tools/calls": 1.0, "tools/calls/open": 1.0, "tools/valid_fraction": 0.5},
]


def test_curves_count_a_tool_that_a_step_did_not_call_as_zero() -> None:
    found = {one.heading: one for one in curves(STEPS)}
    assert list(found) == ["Reward", "Well-formed calls", "Calls of tools"]
    calls = [(one.series, one.step, one.value) for one in found["Calls of tools"].points]
    assert calls == [("open", 1, 0.0), ("open", 2, 1.0), ("search", 1, 0.5), ("search", 2, 0.0)]
    assert [one.step for one in found["Well-formed calls"].points] == [2]
