"""Charts of pages as SVG: metrics over steps, scores over evaluations. Needs the extra ``charts``."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

from rubricsvc.schemas.runs import REWARD
from rubricsvc.stats.estimates import mean_estimate

WIDTHS = {"wide": 760, "narrow": 290}  # pixels. The page shows the one that fits
INK = "#010101"  # the colour of text and lines, which a page replaces by that of its theme


def configured(chart: Any) -> Any:
    """Return a chart, or several side by side, in the style of the pages."""
    axis = {"labelColor": INK, "titleColor": INK, "domainColor": INK, "tickColor": INK, "gridColor": "#88888844"}
    return (
        chart.configure(background="transparent", font="system-ui, sans-serif")
        .configure_axis(**axis, labelFontSize=12, titleFontSize=12, titleFontWeight="normal")
        .configure_view(stroke=None)
        .configure_legend(labelColor=INK, labelFontSize=12, orient="top")
    )


MIN_STEPS = 50  # a curve of fewer steps shows each of them
MIN_WINDOW = 5
MAX_WINDOWS = 40


def windows(series: str, values: Sequence[tuple[int, float]], size: int) -> list["Point"]:
    """Return the mean of each ``size`` consecutive steps, at the mean of their numbers, with its 95 % t interval.

    ``values`` are steps, ascending, with their values. What is left at the end belongs to the last window. Steps count
    as independent: a trend within a window widens its interval.
    """
    count = max(len(values) // size, 1) if values else 0
    parts = [values[size * n : size * (n + 1) if n + 1 < count else None] for n in range(count)]
    found = []
    for part in parts:
        numbers, measured = [step for step, _ in part], [value for _, value in part]
        estimate = mean_estimate(measured, numbers)
        found.append(Point(series, fmean(numbers), fmean(measured), estimate.low, estimate.high))
    return found


COLORS = ("#2f7de1", "#d9822b", "#16a085", "#a45ee5", "#c2453a", "#8a8f98")
LENGTH = "completions/mean_length"
STEP_BANDS = {
    REWARD: "one standard deviation of the rewards of a prompt's completions",
    LENGTH: "from the shortest to the longest completion",
}
"""The bands of metrics whose points are single steps; others have none."""
_PREFIX, _SUFFIX = "rewards/", "/mean"


@dataclass(frozen=True)
class Point:
    """A value after a step, or the mean of some steps, with the ends of its interval or band where it has one."""

    series: str
    step: float
    value: float
    low: float | None = None
    high: float | None = None


def curve(title: str, points: Sequence[Point], width: int, height: int = 220) -> Any:
    """Return the chart of points over steps: a line, with a band, for each series."""
    import altair as alt

    rows = [
        {"series": one.series, "step": one.step, "value": one.value}
        | ({"low": one.low, "high": one.high} if one.low is not None and one.high is not None else {})
        for one in points
    ]
    names = list(dict.fromkeys(one.series for one in points))
    scale = alt.Scale(domain=names, range=[COLORS[n % len(COLORS)] for n in range(len(names))])
    count = max(width // 60, 2)
    ends = [one.step for one in points] or [0.0]  # a short axis has a tick at each step, and none between
    whole_steps = list(range(math.floor(min(ends)), math.ceil(max(ends)) + 1))
    values = whole_steps if len(whole_steps) <= count else alt.Undefined
    axis = alt.Axis(values=values, tickCount=count, format="d", grid=False)
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
    y = alt.Y("value:Q", title=title, scale=y_scale, axis=alt.Axis(tickCount=5, format=".6~g"))
    line = base.mark_line(strokeWidth=2, point={"size": 30}).encode(y=y)
    if not any("low" in row for row in rows):
        return line.properties(width=width, height=height)
    band = base.transform_filter("isValid(datum.low)").mark_area(opacity=0.18)
    band = band.encode(y=alt.Y("low:Q", title=title, scale=y_scale), y2="high:Q")
    return (band + line).properties(width=width, height=height)


def metric_points(steps: Sequence[Mapping[str, Any]], names: Sequence[str]) -> tuple[list[Point], str]:
    """Return metrics over steps, and what their points and bands are.

    A point is the mean of a window, with its 95 % interval, or a step of a short run.
    """
    found, single, several = list[Point](), list[str](), set[int]()
    for name in names:
        measured = ((step["step"], step.get(name)) for step in steps)
        values = [(step, one) for step, one in measured if isinstance(one, int | float) and not isinstance(one, bool)]
        if len(values) >= MIN_STEPS:
            several.add(size := max(MIN_WINDOW, len(values) // MAX_WINDOWS))
            found += windows(name, values, size)
            continue
        single.append(name)
        by_step = {step["step"]: step for step in steps}
        for number, value in values:
            band, step = (None, None), by_step[number]
            if name == LENGTH:
                band = step.get("completions/min_length"), step.get("completions/max_length")
            elif name == REWARD and (deviation := step.get("reward_std")) is not None:
                band = value - deviation, value + deviation
            found.append(Point(name, number, value, *band))
    notes = []
    if several:
        numbers = " or ".join(map(str, sorted(several)))
        steps_of = f"{numbers} consecutive steps in which it was measured, drawn in their middle"
        notes.append(f"A point is the mean of {steps_of}; its band is the 95 % t interval over these steps.")
    if single:
        whose = f"A point of fewer than {MIN_STEPS} steps" if several else "A point"
        bands = [f"the band of {name} is {STEP_BANDS[name]}" for name in single if name in STEP_BANDS]
        notes.append(f"{whose} is one step; {' and '.join(bands) or 'it has no interval'}.")
    return found, " ".join(notes)


def score_points(lines: Iterable[Mapping[str, Any]]) -> list[Point]:
    """Return the mean of each score over the evaluations, with 95 % intervals over prompts."""
    found = []
    for line in lines:
        for name, score in line["scores"].items():
            mean = score["mean"]
            if mean["value"] is None:
                continue
            gold = f"{name} (gold)" if name == line["gold"] else name
            series = "training reward (proxy)" if name == REWARD else gold
            found.append(Point(series, line["step"], mean["value"], mean["low"], mean["high"]))
    return found


def criterion_curves(steps: Sequence[Mapping[str, Any]], most: int, a_chart: int) -> list[tuple[str, list[Point]]]:
    """Return the mean values of up to ``most`` criteria over steps, by key, in charts with their notes."""
    found = {name for step in steps for name in step if name.startswith(_PREFIX) and name.endswith(_SUFFIX)}
    names, charts = sorted(found)[:most], []
    for at in range(0, len(names), a_chart):
        part = names[at : at + a_chart]
        points, note = metric_points(steps, part)
        charts.append((note, [replace(one, series=one.series[len(_PREFIX) : -len(_SUFFIX)]) for one in points]))
    return charts


def drawn(title: str, points: Sequence[Point]) -> dict[str, Any]:
    """Return a chart of points as SVG, by the name of its width, for a template."""
    import vl_convert
    from markupsafe import Markup

    found = dict[str, Any]()
    for name, width in WIDTHS.items():
        sized = curve(title, points, width).properties(padding=2, autosize={"type": "fit-x", "contains": "padding"})
        svg = str(vl_convert.vegalite_to_svg(configured(sized).to_json()))
        # The page's theme colours text and lines.
        found[name] = Markup(svg.replace(INK, "currentColor"))  # noqa: S704 - vega made it, and escapes names
    return found


CURVES = (
    ("Reward", "reward", "Mean training reward of a step's completions"),
    ("Divergence from the starting policy", "kl/start", "Nats a token"),
    ("Length of completions", "completions/mean_length", "Tokens"),
    ("Entropy", "entropy", "Nats a token"),
    ("Completions without a reward", "unscored_fraction", "Share of a step's completions"),
    ("Episodes with a tool call", "tools/used_fraction", "Share of a step's episodes"),
    ("Well-formed calls", "tools/valid_fraction", "Share of a step's calls"),
    ("Episodes with a report", "tools/reported_fraction", "Share of a step's episodes"),
)
"""Headings, metrics, and what is measured in which unit."""
_CALLS = "tools/calls"


class Curve(NamedTuple):
    """A chart with its heading, and what its points and bands are."""

    heading: str
    note: str
    points: list[Point]


def curves(steps: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """Return the curves of what was measured, those of the calls of each tool last.

    A tool that a step does not name was not called in it.
    """
    found = []
    for heading, name, unit in CURVES:
        points, note = metric_points(steps, [name])
        if points:
            found.append(Curve(heading, f"{unit}, by step. {note}", points))
    tools = sorted({name for step in steps for name in step if name.startswith(f"{_CALLS}/")})
    filled = [{**dict.fromkeys(tools, 0.0), **step} for step in steps if _CALLS in step]
    points, note = metric_points(filled, tools)
    if points:
        by_tool = [replace(one, series=one.series.removeprefix(f"{_CALLS}/")) for one in points]
        found.append(Curve("Calls of tools", f"Mean calls of each tool in an episode, by step. {note}", by_tool))
    return found
