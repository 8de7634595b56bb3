"""Best-of-n as a picture and as a page: the curves of each judge beside a perfect and no judge."""

from __future__ import annotations

from typing import Any

from rubricsvc.schemas.runs import BestOfN
from rubricsvc.web.pages import render
from rubricsvc.web.run_charts import Curve, Point, drawn, side_by_side

_OVER: dict[str, Any] = {"over": "samples (n)", "doubling": True}


def picture(result: BestOfN) -> Any:
    """Chart the curves of each judge, two in a row."""
    from rubricsvc.web.charts import configured

    return configured(side_by_side(_curves(result), **_OVER))


def render_best_of_n(result: BestOfN) -> str:
    """Return the page as HTML. Texts are escaped, and the page loads nothing."""
    curves = [(one.heading, drawn("mean over prompts", one.points, **_OVER)) for one in _curves(result)]
    return render("best_of_n.html.j2", found=result, curves=curves)


def _curves(result: BestOfN) -> list[Curve]:
    note = f"Means over {result.prompts} prompts with 95 % intervals. Gold: {result.gold_source}."
    charts = []
    for judge in result.judges:
        curves = {
            "reward (proxy)": judge.proxy,
            "gold": judge.gold,
            "gold, perfect judge": result.oracle,
            "gold, worst of n": result.worst,
        }
        points = [
            Point(name, n, one.value, one.low, one.high)
            for name, estimates in curves.items()
            for n, one in zip(result.n, estimates, strict=True)
            if one.value is not None
        ]
        charts.append(Curve(judge.title, note, points))
    return charts
