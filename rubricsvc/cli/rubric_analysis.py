"""`rubricsvc rubrics analyse`: what stored verdicts and labels show about criteria."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rubricsvc.cli import output
from rubricsvc.cli.db import database
from rubricsvc.cli.output import Json, cell, counted, echo, estimate_cells, print_data, print_json, print_table, show
from rubricsvc.core.rubric_analysis import MIN_VERDICTS, Advice, CriterionStatistics, RubricAnalysis

JudgeOfScores = Annotated[
    str | None, typer.Option(help="Judge.", show_default="the job's, or the one with the most completions")
]
MOST_ROWS = 40
MOST_RUBRICS = 3


def analyse(
    ref: Annotated[str | None, typer.Argument(help="Rubric version; without one, all rubrics of --job.")] = None,
    *,
    job: Annotated[int | None, typer.Option(help="Only what this job scored.")] = None,
    judge: JudgeOfScores = None,
    out: Annotated[Path | None, typer.Option(help="Write an HTML page.")] = None,
    as_json: Json = False,
) -> None:
    """Analyse the criteria of a rubric from stored verdicts and labels, and advise what to change.

    No judge is asked, and nothing is stored. It needs the extra `judging`.
    """
    from rubricsvc.services.analysing import analyse as analyse_rubrics

    with database() as db, db.read() as session, output.progress_bar("analysing") as bar:
        found = analyse_rubrics(session, ref, job_id=job, judge=judge, on_progress=bar.update)
    if out is not None:
        from rubricsvc.web.rubric_analysis import render_analysis

        with output.open_output(out) as stream:
            stream.write(render_analysis(found))
    if as_json:
        for one in found:
            print_json(one.model_dump(mode="json"))
    elif out is None:
        _print(found)


def _print(found: Sequence[RubricAnalysis]) -> None:
    for number, one in enumerate(found[:MOST_RUBRICS]):
        if number:
            print_data("")
        _print_one(one)
    if len(found) > MOST_RUBRICS:
        advised = [(one, advice) for one in found[MOST_RUBRICS:] for advice in one.advice]
        print_data(f"\nAdvice on the other {len(found) - MOST_RUBRICS} rubrics:")
        print_table(
            ("rubric", "criterion", "advice", "evidence"),
            [[one.rubric, advice.criterion, advice.action, advice.evidence] for one, advice in advised[:MOST_ROWS]],
        )
        echo(f"{counted(len(advised), 'piece')} of advice on them; --json prints everything, a rubric a line")


def _print_one(one: RubricAnalysis) -> None:
    show(_summary(one))
    print_data("")
    names = list(_row(one.criteria[0]))
    print_table(names, [list(_row(criterion).values()) for criterion in one.criteria[:MOST_ROWS]])
    if len(one.criteria) > MOST_ROWS:
        echo(f"… and {len(one.criteria) - MOST_ROWS} more criteria; --json prints all")
    if one.redundant:
        print_data("\nRedundant pairs:")
        rows = [[pair.a, pair.b, pair.correlation, pair.n] for pair in one.redundant[:MOST_ROWS]]
        print_table(("criterion", "criterion", "correlation", "completions"), rows)
    if one.preferences:
        print_data("\nPreferences of people (error: share of pairs in the wrong order):")
        print_table(("weights", "error", "bound"), [[b.weights, b.error, b.bound] for b in one.preferences.bounds])
    if one.advice:
        print_data("\nAdvice:")
        print_table(("criterion", "advice", "evidence"), [_advice_cells(advice) for advice in one.advice])
    elif one.completions < MIN_VERDICTS:
        echo(f"no advice: {counted(one.completions, 'completion')}; advice needs {MIN_VERDICTS} verdicts")
    else:
        echo("no advice: no criterion exceeds a limit of docs/analysing.md")


def _summary(one: RubricAnalysis) -> dict[str, Any]:
    spread = one.reward
    return {
        "rubric": one.rubric,
        "judge": ", ".join([one.judge, *(f"compared with {name}" for name in one.other_judges)]),
        "completions": f"{one.completions} of {counted(one.prompts, 'prompt')}",
        "groups of 2 or more": one.groups,
        "rewards": f"{spread.n}, {spread.altered} changed by the clip or a veto",
        "mean reward": " ".join(filter(None, estimate_cells(spread.mean))),
        "variance": f"{cell(spread.variance)}, within groups {cell(spread.variance_within)}",
        "groups that vary": _percent(spread.varying_groups),
        "preferences": f"{one.preferences.pairs} pairs of {counted(one.preferences.prompts, 'prompt')}"
        if one.preferences
        else "",
    }


def _row(one: CriterionStatistics) -> dict[str, Any]:
    kappa = one.agreement.get("weighted_kappa")
    return {
        "criterion": output.shorten(one.key, 40),
        "weight": one.weight,
        "n": one.n,
        "unscored": _percent(one.failed + one.abstained) if one.failed + one.abstained else "",
        "mean": _optional(one.mean.value),
        "met": _percent(one.met.value),
        "95%": f"[{_percent(one.met.low)}, {_percent(one.met.high)}]" if one.met.low is not None else "",
        "var_within": _optional(one.variance_within),
        "groups_vary": _percent(one.varying_groups),
        "share": _percent(one.variance_share_within if one.variance_share_within is not None else one.variance_share),
        "explained": _percent(one.explained),
        "length_r": _optional(one.length_correlation),
        "judges_alpha": _optional(one.disagreement.alpha) if one.disagreement else "",
        "kappa": _optional(kappa.value) if kappa else "",
        "edge": _optional(one.edge.value) if one.edge else "",
    }


def _optional(value: float | None) -> str:
    return "" if value is None else f"{value:z.3f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:z.1f}%"


def _advice_cells(one: Advice) -> Iterator[str]:
    yield from (output.shorten(one.criterion, 40), one.action, one.evidence)
