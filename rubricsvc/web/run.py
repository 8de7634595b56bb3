"""Pages of training runs: the report of one, two compared, a sweep. Texts are escaped, and pages load nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

from rubricsvc import __version__
from rubricsvc.core.prompt import Message, ToolCall
from rubricsvc.core.trajectory import is_error, json_of, turns_of
from rubricsvc.schemas.runs import (
    REWARD,
    RunComparison,
    RunReport,
    Sample,
    SweepTable,
    column_of,
    flat,
    in_order,
    measure_rows,
)
from rubricsvc.stats.regressions import regressions
from rubricsvc.web.pages import render, signed
from rubricsvc.web.passport import MEASURES
from rubricsvc.web.run_charts import (
    CURVES,
    Point,
    band_note,
    criterion_names,
    criterion_points,
    curves,
    distance_curve,
    drawn,
    fits,
    metric_points,
    score_points,
)

CRITERIA_A_CHART = 6
MAX_CRITERIA = 24


def render_run(report: RunReport) -> str:
    """Return the page as HTML. Texts are escaped, and the page loads nothing."""
    names = criterion_names(report.steps)[:MAX_CRITERIA]
    parts = [names[at : at + CRITERIA_A_CHART] for at in range(0, len(names), CRITERIA_A_CHART)]
    scores = score_points(report.evaluations)
    distance = distance_curve(report.steps, report.evaluations)
    evaluations = in_order([*report.evaluations, *report.baselines])
    return render(
        "run.html.j2",
        report=report,
        sentence=result_sentence(report.evaluations),
        shown_turns=shown_turns,
        has_bands=any(one.low is not None for one in scores),
        scores=drawn("mean score", scores) if scores else None,
        distance=distance,
        distance_svgs=drawn("change of the mean score", distance.points, over=distance.over)
        if distance.points
        else None,
        fits=fits(report.steps, report.evaluations),
        curves=[(one.heading, one.note, drawn(one.heading.lower(), one.points)) for one in curves(report.steps)],
        criteria=[
            (band_note(report.steps, part), drawn("mean value", criterion_points(report.steps, part))) for part in parts
        ],
        figures=[table for table in report.passport.tables if table.whole and table.trained] if report.passport else [],
        regressions=regressions(report.evaluations),
        columns=[column_of(line) for line in evaluations],
        behaviour=measure_rows(evaluations),
        measures=MEASURES,
        config=list(flat(report.config)),
        reward=REWARD,
        version=__version__,
    )


def result_sentence(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return what the last evaluation says of the policy beside the starting one, by the gold score."""
    if len(lines) < 2:
        number = "one evaluation" if lines else "no evaluations"
        return f"The run has {number} on held-out prompts: its reward alone does not show that the policy is better."
    gold = lines[-1]["gold"]
    change = lines[-1]["scores"][gold].get("mean_difference")
    if change is None or change["value"] is None:
        return f"No prompt has a score by {gold} at the start and at the end."
    name = "the training reward, which is no independent score" if gold == REWARD else gold
    if change["low"] is None:
        return f"By {name} the policy changed by {signed(change['value'], 3)}; too few prompts for an interval."
    interval = f"{signed(change['value'], 3)} (95 %: {signed(change['low'], 3)} to {signed(change['high'], 3)})"
    if change["low"] > 0:
        return f"By {name} the policy improved by {interval} on held-out prompts."
    if change["high"] < 0:
        return f"By {name} the policy got worse by {interval} on held-out prompts."
    return f"By {name} the policy changed by {interval} on held-out prompts: not distinguishable from chance."


class ShownCall(NamedTuple):
    """A call with its arguments by name, and its result; ``name`` is empty where the call was malformed."""

    name: str
    arguments: tuple[tuple[str, str], ...]
    result: str | None
    is_error: bool


class ShownTurn(NamedTuple):
    """A message of the policy, and its calls."""

    text: str
    calls: tuple[ShownCall, ...]


def shown_turns(sample: Sample) -> list[ShownTurn]:
    """Return the turns of an episode before its report; a report that is an argument is not shown twice."""
    turns = [
        ShownTurn(one.text, tuple(_shown(*pair, sample.text) for pair in one.calls))
        for one in turns_of(sample.messages)
    ]
    return [one for one in turns if one.calls or one.text != sample.text]


def _shown(call: ToolCall | None, result: Message | None, report: str) -> ShownCall:
    data = json_of(call.arguments) if call is not None else {}
    named = data if isinstance(data, dict) else {"": call.arguments if call is not None else ""}
    arguments = tuple((name, str(value)) for name, value in named.items() if not report or value != report)
    content = result.content if result is not None else None
    return ShownCall(call.name if call is not None else "", arguments, content, is_error(json_of(content or "")))


Chart = tuple[str, dict[str, Any]]
"""The run or runs in a chart, and the chart."""


def render_comparison(found: RunComparison, a: RunReport, b: RunReport) -> str:
    """Return the page as HTML. Texts are escaped, and the page loads nothing."""
    return render(
        "run_comparison.html.j2",
        a=found.a,
        b=found.b,
        notes=found.notes,
        config=found.config,
        scores=found.scores,
        reward=REWARD,
        score_curves=list(_score_curves(found, a, b)),
        samples=_side_by_side(found, a, b),
        curves=list(_compared_curves(found, a, b)),
        version=__version__,
    )


def _compared_curves(found: RunComparison, a: RunReport, b: RunReport) -> Iterator[tuple[str, list[Chart], str]]:
    for heading, name, unit in CURVES:
        sides = [metric_points(report.steps, [name]) for report in (a, b)]
        if any(sides):
            runs = [(run, report) for run, report, side in zip("AB", (a, b), sides, strict=True) if side]
            notes = {run: band_note(report.steps, [name]) for run, report in runs}
            same = len(set(notes.values())) == 1
            texts = set(notes.values()) if same else [f"{run}: {note}" for run, note in notes.items()]
            note = f"{unit}, by step. {' '.join(texts)}"
            yield heading, _charts(heading.lower(), sides, apart=name == REWARD and bool(found.reward_reason)), note


def _score_curves(found: RunComparison, a: RunReport, b: RunReport) -> Iterator[tuple[str, list[Chart]]]:
    names = dict.fromkeys(score for report in (a, b) for line in report.evaluations for score in line["scores"])
    refused = {row.score for row in found.scores if row.measure == "mean" and row.result == "not_comparable"}
    for score in names:
        sides = [
            score_points(
                {**line, "scores": {score: line["scores"][score]}}
                for line in report.evaluations
                if score in line["scores"]
            )
            for report in (a, b)
        ]
        if any(sides):
            yield f"Mean {score}", _charts(f"mean {score}", sides, apart=score in refused)


def _charts(title: str, sides: Sequence[Sequence[Point]], *, apart: bool) -> list[Chart]:
    """Return the curves of both runs in one chart, or, where they are not on one scale, in one chart each."""
    named = {name: [replace(one, series=name) for one in side] for name, side in zip("AB", sides, strict=True) if side}
    groups = [[name] for name in named] if apart else [list(named)]
    return [(" and ".join(names), drawn(title, [one for name in names for one in named[name]])) for names in groups]


def _side_by_side(found: RunComparison, a: RunReport, b: RunReport) -> dict[str, dict[str, Sample]]:
    """Return for each prompt of both runs the completions of their first, best and last policies."""
    columns: dict[str, tuple[RunReport, str]] = {}
    for name, report in (("A", a), ("B", b)):
        steps = {row.step_a if name == "A" else row.step_b for row in found.scores}
        if report.evaluations:
            steps |= {report.evaluations[0]["step"], report.evaluations[-1]["step"]}
        columns |= {f"{name}, step {step}": (report, f"step {step}") for step in sorted(steps)}
    return {
        prompt: {
            title: report.samples[prompt][name]
            for title, (report, name) in columns.items()
            if name in report.samples[prompt]
        }
        for prompt in a.samples
        if prompt in b.samples
    }


Variants = Mapping[str, Mapping[int, RunReport]]
"""The runs of a sweep, by variant and seed."""


def render_sweep(table: SweepTable, variants: Variants) -> str:
    """Return the page as HTML. Texts are escaped, and the page loads nothing."""
    return render(
        "sweep.html.j2", table=table, curves=list(_sweep_curves(table, variants)), reward=REWARD, version=__version__
    )


def _sweep_curves(table: SweepTable, variants: Variants) -> Iterator[tuple[str, dict[str, Any]]]:
    for score in dict.fromkeys(row.score for row in table.rows):
        points = [
            point
            for variant, runs in variants.items()
            for point in _points(variant, [run.evaluations for run in runs.values()], score)
        ]
        if points:
            yield f"Mean {score} on held-out prompts", drawn(f"mean {score}", points)


def _points(variant: str, runs: Sequence[Sequence[Mapping[str, Any]]], score: str) -> Iterator[Point]:
    """Yield the mean over seeds after each evaluated step, with the lowest and the highest seed as its band."""
    values: dict[int, list[float]] = defaultdict(list)
    for lines in runs:
        for line in lines:
            mean = line["scores"].get(score, {}).get("mean", {}).get("value")
            if mean is not None:
                values[line["step"]].append(mean)
    for step, found in sorted(values.items()):
        band = (min(found), max(found)) if len(found) > 1 else (None, None)
        yield Point(variant, step, fmean(found), *band)
