"""The curves of a training run that its report shows."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rubricsvc.web.run_charts import STEP, Point, band_note, curve, metric_points

CURVES = (
    ("Reward", "reward", "Mean training reward of a step's completions"),
    ("Divergence from the starting policy", "kl/start", "Nats a token"),
    ("Length of completions", "completions/mean_length", "Tokens"),
    ("Entropy", "entropy", "Nats a token"),
    ("Completions without a reward", "unscored_fraction", "Share of a step's completions"),
    ("Episodes with a tool call", "tools/used_fraction", "Share of a step's episodes"),
    ("Well-formed calls", "tools/valid_fraction", "Share of a step's calls"),
    ("Episodes with a report", "tools/reported_fraction", "Share of a step's episodes"),
    ("Bonus for tools", "tool_bonus", "Mean of a step's completions, in units of the advantage"),
)
"""Headings, metrics, and what is measured in which unit."""
PANEL_WIDTH, NOTE_CHARS = 380, 62
"""Pixels of one of several charts, and characters of a line above it."""
_CALLS = "tools/calls"


class Curve(NamedTuple):
    """A chart with its heading, and what its points and bands are, over steps or another number."""

    heading: str
    note: str
    points: list[Point]
    over: str = STEP


def side_by_side(shown: Sequence[Curve], **options: Any) -> Any:
    """Chart curves with their headings and notes, two in a row; with options of `curve`."""
    import altair as alt

    charts = [
        curve("", one.points, height=200, **({"over": one.over} | options))(PANEL_WIDTH).properties(
            title=alt.Title(one.heading, subtitle=textwrap.wrap(one.note, NOTE_CHARS), anchor="start")
        )
        for one in shown
    ]
    return alt.concat(*charts, columns=2).resolve_scale(color="independent")


def curves(steps: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """Return the curves of what was measured."""
    found = [
        Curve(heading, f"{unit}, by step. {band_note(steps, [name])}", points)
        for heading, name, unit in CURVES
        if (points := metric_points(steps, [name]))
    ]
    return [*found, *_calls(steps)]


def _calls(steps: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """Return the curve of the calls of each tool; a tool that a step does not name was not called in it."""
    names = sorted({name for step in steps for name in step if name.startswith(f"{_CALLS}/")})
    filled = [{**dict.fromkeys(names, 0.0), **step} for step in steps if _CALLS in step]
    points = [replace(one, series=one.series.removeprefix(f"{_CALLS}/")) for one in metric_points(filled, names)]
    note = f"Mean calls of each tool in an episode, by step. {band_note(filled, names)}"
    return [Curve("Calls of tools", note, points)] if points else []
