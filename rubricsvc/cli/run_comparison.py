"""`rubricsvc runs compare`: two training runs beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from rubricsvc.cli import output
from rubricsvc.cli.output import Json, echo, estimate_cells, print_data, print_json, print_table, shorten
from rubricsvc.cli.run_report import read_report
from rubricsvc.core.run_comparison import ComparedRun, RunComparison, ScoreComparison
from rubricsvc.errors import needs_extra

_MAX_VALUE_CHARS = 60


def compare(
    a: Annotated[str, typer.Argument(help="Id or folder of the run to compare with.", show_default=False)],
    b: Annotated[str, typer.Argument(help="Id or folder of the other run.", show_default=False)],
    *,
    out: Annotated[
        Path | None, typer.Option(help="Page to write as well: curves, samples.", show_default="none")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare two runs: configuration, training rewards, and scores on the held-out prompts that they share.

    Differences are B less A, paired by prompt, with 95 % intervals over prompts.
    """
    from rubricsvc.services import run_comparing

    if out is not None:
        with needs_extra("charts"):
            import altair  # noqa: F401
            import vl_convert  # noqa: F401
    first, second = read_report(a), read_report(b)
    found = run_comparing.compare(first, second)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        _print(found)
    if out is not None:
        from rubricsvc.web.run_comparison import render_comparison

        page = render_comparison(found, first, second)
        with output.open_output(out) as stream:
            stream.write(page)


def _print(found: RunComparison) -> None:
    columns = ["", "run", "status", "policy", "judge", "steps", "reward_first", "reward_last", "evaluations", "gold"]
    print_table(columns, [_run_cells("A", found.a), _run_cells("B", found.b)])
    print_data("\nConfiguration:")
    if found.config:
        rows = [[one.path, _value(one.a), _value(one.b)] for one in found.config]
        print_table(["field", "a", "b"], rows)
    else:
        print_data("no differences")
    if found.scores:
        print_data("\nHeld-out prompts (B - A, paired by prompt, with 95 % intervals):")
        print_table(["policy", "steps", "score", "prompts", "a", "b", "b - a", "b is"], map(_score_cells, found.scores))
    for note in found.notes:
        echo(f"note: {note}")


def _run_cells(name: str, run: ComparedRun) -> list[Any]:
    steps = f"{run.steps} of {run.steps_total}"
    rewards = (run.reward_first, run.reward_last)
    return [
        name,
        run.name,
        run.status,
        run.policy or "",
        run.judge or "",
        steps,
        *rewards,
        run.evaluations,
        run.gold or "",
    ]


def _value(value: Any) -> str:
    return "-" if value is None else shorten(value if isinstance(value, str) else json.dumps(value), _MAX_VALUE_CHARS)


def _score_cells(row: ScoreComparison) -> list[Any]:
    steps = str(row.step_a) if row.step_a == row.step_b else f"{row.step_a}, {row.step_b}"
    name = f"{row.score}{' greedy' * (row.measure == 'greedy')}{' (gold)' * row.gold}"
    if row.difference is None:
        return [row.evaluation, steps, name, "", "", "", "", f"not compared: {row.reason}"]
    difference = " ".join(filter(None, estimate_cells(row.difference, digits=4)))
    result = row.difference.null_reason if row.result == "no_interval" else row.result.replace("_", " ")
    return [row.evaluation, steps, name, row.prompts, row.a, row.b, difference, result]
