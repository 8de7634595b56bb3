"""Best-of-n as a picture and as a page: the curves of each judge beside a perfect and no judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rubricsvc import __version__
from rubricsvc.core.estimate import Estimate
from rubricsvc.schemas.runs import BestOfN, JudgeCurves
from rubricsvc.web.pages import render
from rubricsvc.web.run_charts import Curve, Point, drawn, side_by_side

DISTINCT = 0.9
"""Share of samples from which on so few answers are the same that a vote is hardly more than the best sample."""
_OVER: dict[str, Any] = {"over": "samples (n)", "doubling": True}


def picture(found: BestOfN) -> Any:
    """Chart the curves of each judge, two in a row."""
    from rubricsvc.web.charts import configured

    return configured(side_by_side(_curves(found), **_OVER))


def render_best_of_n(found: BestOfN) -> str:
    """Return the page as HTML. Texts are escaped, and the page loads nothing."""
    return render(
        "best_of_n.html.j2",
        found=found,
        curves=[(one.heading, drawn("mean over prompts", one.points, **_OVER)) for one in _curves(found)],
        version=__version__,
    )


def _curves(found: BestOfN) -> list[Curve]:
    note = f"Means over {found.prompts} prompts with 95 % intervals. Gold: {found.gold_source}."
    return [Curve(one.title, note, _points(found, one)) for one in found.judges]


def _points(found: BestOfN, judge: JudgeCurves) -> list[Point]:
    """Return the points of a judge's chart; votes are those of single samples where few answers are the same."""
    curves: dict[str, Sequence[Estimate]] = {
        "reward (proxy)": judge.proxy,
        "gold": judge.gold,
        "gold, perfect judge": found.oracle,
        "gold, worst of n": found.worst,
    }
    if (found.distinct[-1].value or 0.0) < DISTINCT * found.n[-1]:
        curves["gold, weighted vote"] = judge.weighted_vote
    return [
        Point(name, n, one.value, one.low, one.high)
        for name, estimates in curves.items()
        for n, one in zip(found.n, estimates, strict=True)
        if one.value is not None
    ]
