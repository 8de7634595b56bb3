"""The page of two training runs beside each other."""

from __future__ import annotations

from typing import Any

from rubricsvc.schemas.runs import RunReport, Sample
from rubricsvc.services.run_comparing import compare
from rubricsvc.web.run import render_comparison

BAD = "<script>alert(1)</script>"
VALUES = [0.1, 0.2, 0.3, 0.4, 0.5]


def report(name: str, model: str = "m", by: float = 0.0) -> RunReport:
    estimate = {"value": 0.3 + by, "low": 0.2 + by, "high": 0.4 + by}
    values = {"reward": {"mean": [value + by for value in VALUES], "greedy": None}}
    line = {"step": 2, "gold": "reward", "setup": "s", "prompts": 5, "values": values}
    steps: list[dict[str, Any]] = [{"step": at, "reward": 0.5, "reward_std": 0.1} for at in (1, 2)]
    sample = Sample(prompt=BAD, text=BAD, where=BAD, scores={BAD: 1.0})
    config = {"steps": 2, "judge": {"name": BAD, "model": model}, BAD: name}
    evaluations = [{**line, "scores": {"reward": {"mean": estimate}}}]
    return RunReport(
        name=name,
        config=config,
        steps=steps,
        evaluations=evaluations,
        columns=["step 2"],
        samples={BAD: {"step 2": sample}},
    )


def page(a: RunReport, b: RunReport) -> str:
    return render_comparison(compare(a, b), a, b)


def test_render_comparison_escapes_all_texts_and_loads_nothing() -> None:
    found = page(report(f"a{BAD}"), report("b"))
    assert "<script" not in found and "&lt;script&gt;alert(1)" in found
    assert 'src="' not in found and "<link rel" not in found


def test_render_comparison_has_both_runs_in_one_chart_only_on_one_scale() -> None:
    same, other = page(report("a"), report("b", by=0.1)), page(report("a"), report("b", model="n"))
    assert same.count('aria-label="Reward, A and B"') == 1 and 'aria-label="Mean reward, A and B"' in same
    assert other.count('aria-label="Reward, A"') == other.count('aria-label="Reward, B"') == 1
    assert 'aria-label="Mean reward, A and B"' not in other
    assert 'class="up">higher' in same and 'class="up">higher' not in other


def test_render_comparison_of_runs_that_have_just_begun() -> None:
    empty = RunReport(name="1", config={"steps": 2}, steps=[])
    assert "Neither run has a step" in page(empty, empty)
