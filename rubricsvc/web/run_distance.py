"""Proxy and gold over the distance from the starting policy, with the fitted forms, for the report of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rubricsvc.core.run_evaluation import REWARD
from rubricsvc.stats.overoptimization import FORMS, Fit, changes, distances, fit, mean_changes
from rubricsvc.web.run_charts import Point, score_name
from rubricsvc.web.run_curves import Curve

DRAWN = "RL"
"""The form whose curve is drawn."""
DISTANCE = "square root of KL (nats a completion)"
_NOTE = (
    "Mean change of each score since the start, on held-out prompts; bands are 95 % intervals over prompts. "
    "Fits are of the form d (α − β log d)."
)


def fits(steps: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]]) -> list[Fit]:
    """Return both forms fitted to proxy and gold; empty with too few evaluations or without measured divergences."""
    at = distances(steps, lines)
    found = (fit(changes(at, lines, name), name, form) for name in _scores(lines) for form in FORMS)
    return [one for one in found if one is not None]


def distance_curve(steps: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]]) -> Curve:
    """Return the curve of proxy and gold over the distance; without points where it was not measured."""
    at, points = distances(steps, lines), list[Point]()
    gold = lines[-1]["gold"] if lines else REWARD
    for name in _scores(lines):
        title, found = score_name(name, gold), changes(at, lines, name)
        points += [
            Point(title, d, one.value, one.low, one.high) for d, one in mean_changes(found) if one.value is not None
        ]
        if (form := fit(found, name, DRAWN)) is not None:
            points += [Point(f"{title}, fit", d, one.value) for d, one in form.curve if one.value is not None]
    return Curve("Proxy and gold over the distance from the start", _NOTE, points if len(points) > 2 else [], DISTANCE)


def _scores(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return proxy and gold, where all evaluations have them for the same number of prompts."""
    if len(lines) < 2:
        return []
    names = dict.fromkeys((REWARD, lines[-1]["gold"]))
    sizes = {name: {len(line["values"].get(name, {"mean": []})["mean"]) for line in lines} for name in names}
    return [name for name, size in sizes.items() if len(size) == 1 and 0 not in size]
