"""Best-of-n as a page: the curves of each judge beside a perfect and no judge."""

from __future__ import annotations

from rubricsvc.schemas.runs import BestOfN
from rubricsvc.web.pages import render
from rubricsvc.web.run_charts import Point, drawn


def render_best_of_n(result: BestOfN) -> str:
    """Return the page as HTML. Texts are escaped, and the page loads nothing."""
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
        charts.append((judge.title, drawn("mean over prompts", points, over="samples (n)", doubling=True)))
    return render("best_of_n.html.j2", found=result, curves=charts)
