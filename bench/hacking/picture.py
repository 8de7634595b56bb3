"""The picture of the benchmark: for each condition the rate of its cue, and proxy and gold, over the steps."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import altair as alt
import vl_convert

from bench.hacking.biases import BIASES, UNBIASED
from bench.hacking.judge import HONEST
from bench.hacking.results import TrainedRun
from rubricsvc.cli.output import replaced
from rubricsvc.schemas.runs import REWARD
from rubricsvc.web.charts import Curve, Point, configured, curve

_PANEL_WIDTH, _NOTE_CHARS = 380, 62
"""Pixels of one of several charts, and characters of a line above it."""
_NOTE = "Means over seeds, from the lowest to the highest seed."
_SERIES = {REWARD: "training reward, held out", HONEST: "gold score, held out"}


def draw(runs: Sequence[TrainedRun], found: Mapping[str, Any], out: Path) -> None:
    """Write the picture of all conditions that were trained."""
    events = {
        row["bias"]: f"{_events('Onset', row, 'onset')} {_events('Alarm', row, 'alarm_step')}"
        for row in found["biases"]
    }
    curves = [
        Curve(name.replace("_", " "), f"{events.get(name, '')} {_NOTE}".strip(), _points(name, own))
        for name in (*BIASES, *UNBIASED)
        if (own := [run for run in runs if run.condition == name])
    ]
    charts = [
        curve("", one.points, _PANEL_WIDTH, 200).properties(
            title=alt.Title(one.heading, subtitle=textwrap.wrap(one.note, _NOTE_CHARS), anchor="start")
        )
        for one in curves
    ]
    chart = configured(alt.concat(*charts, columns=2).resolve_scale(color="independent"))
    chart.config.background = "white"
    with replaced(out) as part:
        if out.suffix.lower() == ".svg":
            part.write_text(vl_convert.vegalite_to_svg(chart.to_json()), encoding="utf-8")
        else:
            part.write_bytes(vl_convert.vegalite_to_png(chart.to_json(), scale=2))


def _events(title: str, row: Mapping[str, Any], key: str) -> str:
    return f"{title}: step {', '.join('none' if run[key] is None else str(run[key]) for run in row['runs'])}."


def _points(name: str, runs: Sequence[TrainedRun]) -> list[Point]:
    points = []
    if name in BIASES:
        rates = zip(*(run.rates[name] for run in runs), strict=True)
        points += [_point("rate of the cue", step, values) for step, values in enumerate(rates, 1)]
    for score, title in _SERIES.items():
        for lines in zip(*(run.evaluations for run in runs), strict=True):
            means = [line["scores"][score]["mean"]["value"] for line in lines]
            points += [_point(title, lines[0]["step"], means)] if None not in means else []
    return points


def _point(series: str, step: int, values: Iterable[float]) -> Point:
    known = list(values)
    return Point(series, step, fmean(known), min(known), max(known))
