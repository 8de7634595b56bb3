"""Charts of a training run: curves of its steps, and of its evaluations with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

COLORS = ("#2f7de1", "#d9822b", "#16a085", "#a45ee5", "#c2453a", "#8a8f98")
REWARD = "reward"
_PREFIX, _SUFFIX = "rewards/", "/mean"


@dataclass(frozen=True)
class Point:
    """A value after a step, with the ends of its interval or band where it has one."""

    series: str
    step: int
    value: float
    low: float | None = None
    high: float | None = None


def curve(title: str, points: Sequence[Point], height: int = 220) -> Callable[[int], Any]:
    """Chart points over steps: a line, with a band, for each series."""
    import altair as alt

    rows = [
        {"series": one.series, "step": one.step, "value": one.value}
        | ({"low": one.low, "high": one.high} if one.low is not None and one.high is not None else {})
        for one in points
    ]
    names = list(dict.fromkeys(one.series for one in points))
    scale = alt.Scale(domain=names, range=[COLORS[n % len(COLORS)] for n in range(len(names))])

    def chart(width: int) -> Any:
        axis = alt.Axis(tickMinStep=1, tickCount=max(width // 60, 2), format="d", grid=False)
        legend = (
            alt.Legend(columns=max(width // 170, 1), labelLimit=width, symbolOpacity=1, columnPadding=28)
            if len(names) > 1
            else None
        )
        base = alt.Chart(alt.Data(values=rows)).encode(
            x=alt.X("step:Q", title="step", axis=axis),
            color=alt.Color("series:N", title=None, scale=scale, sort=names, legend=legend),
        )
        is_zero = all(row["value"] == 0 for row in rows)
        y_scale = alt.Scale(domain=[0, 1]) if is_zero else alt.Scale(zero=False)
        y = alt.Y("value:Q", title=title, scale=y_scale, axis=alt.Axis(tickCount=5))
        line = base.mark_line(strokeWidth=2, point={"size": 30}).encode(y=y)
        if not any("low" in row for row in rows):
            return line.properties(width=width, height=height)
        band = base.transform_filter("isValid(datum.low)").mark_area(opacity=0.18)
        band = band.encode(y=alt.Y("low:Q", title=title, scale=y_scale), y2="high:Q")
        return (band + line).properties(width=width, height=height)

    return chart


def metric_points(steps: Iterable[Mapping[str, Any]], names: Sequence[str]) -> list[Point]:
    """Return metrics over steps. The band of ``reward`` is one standard deviation within groups."""
    found = []
    for name in names:
        for step in steps:
            value = step.get(name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            band = step.get("reward_std") if name == REWARD else None
            low, high = (value - band, value + band) if band is not None else (None, None)
            if name == "completions/mean_length":
                low, high = step.get("completions/min_length"), step.get("completions/max_length")
            found.append(Point(name, step["step"], value, low, high))
    return found


def score_points(lines: Iterable[Mapping[str, Any]]) -> list[Point]:
    """Return the mean of each score over the evaluations, with 95 % intervals over prompts."""
    found = []
    for line in lines:
        for name, score in line["scores"].items():
            mean = score["mean"]
            if mean["value"] is None:
                continue
            kind = "training reward (proxy)" if name == REWARD else f"{name} (gold)" if name == line["gold"] else name
            found.append(Point(kind, line["step"], mean["value"], mean["low"], mean["high"]))
    return found


def criterion_names(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the metrics that are means of criteria."""
    names = {name for step in steps for name in step if name.startswith(_PREFIX) and name.endswith(_SUFFIX)}
    return sorted(names)


def criterion_points(steps: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Point]:
    """Return the mean values of criteria over steps, by key."""
    return [
        Point(point.series[len(_PREFIX) : -len(_SUFFIX)], point.step, point.value)
        for point in metric_points(steps, names)
    ]
