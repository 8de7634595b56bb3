"""`rubricsvc bestofn`: what choosing the best of n samples by the rewards of judges gives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rubricsvc.cli.db import database
from rubricsvc.cli.output import (
    Json,
    counted,
    estimate_cells,
    number,
    open_output,
    print_data,
    print_json,
    print_table,
    progress_bar,
    show,
)
from rubricsvc.cli.pictures import check_picture, write_picture
from rubricsvc.core.estimate import Estimate
from rubricsvc.errors import InvalidError
from rubricsvc.schemas.runs import BestOfN, JudgeCurves


def bestofn(
    *,
    job: Annotated[list[int], typer.Option(help="Job whose rewards choose; repeat it to compare judges.")],
    gold: Annotated[str, typer.Option(help="Id of a job of another judge, labels, or checks.")],
    n: Annotated[
        int | None, typer.Option("--n", min=2, help="Largest n.", show_default="fewest samples of a prompt")
    ] = None,
    answer: Annotated[
        str | None, typer.Option(help="Pattern of the answer that is voted on.", show_default="the text")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Chart to write: .svg, .png or .html.", show_default="none")] = None,
    as_json: Json = False,
) -> None:
    """Show what the best of n samples is worth by a gold score, if judges choose it by their rewards.

    The samples are the completions of each prompt that all jobs scored. Estimates are unbiased, and no judge is asked.
    """
    from rubricsvc.services.best_of_n import best_of_n

    ending = check_picture(out, ".html") if out is not None else ""
    try:
        re.compile(answer or "")
    except re.error as error:
        raise InvalidError(f"--answer is no regular expression: {error}", hint="quote it", path="answer") from error
    with database() as db, db.read() as session, progress_bar("best of n") as bar:
        found = best_of_n(session, job, gold, most=n, answer=answer, on_progress=bar.update)
    if out is not None:
        from rubricsvc.web.best_of_n import picture, render_best_of_n

        if ending == ".html":
            with open_output(out) as stream:
                stream.write(render_best_of_n(found))
        else:
            write_picture(picture(found), out)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        _print(found)


def _print(found: BestOfN) -> None:
    few, many = found.samples
    show(
        {
            "gold": found.gold_source,
            "samples": f"{counted(found.prompts, 'prompt')}, {few if few == many else f'{few} to {many}'} each",
            "left out": found.left_out,
        }
    )
    columns = ["judge", "gold_of_1", f"gold_of_{found.n[-1]}", "gain", "oracle_share", "slope", "less_first"]
    print_data("")
    print_table(columns, [_summary_cells(one) for one in found.judges])
    for one in found.judges:
        print_data(f"\n{one.title}:")
        curves = {"proxy": one.proxy, "gold": one.gold, "weighted_vote": one.weighted_vote}
        _print_curves(found, curves)
    print_data("\nWithout a judge:")
    shared = {"oracle": found.oracle, "worst": found.worst, "vote": found.vote, "distinct": found.distinct}
    _print_curves(found, shared)


def _summary_cells(one: JudgeCurves) -> list[Any]:
    figures = (one.gold[0], one.gold[-1], one.gain, one.oracle_share, one.slope, one.difference)
    return [one.title, *map(_text, figures)]


def _print_curves(found: BestOfN, curves: Mapping[str, Sequence[Estimate]]) -> None:
    rows = [
        [n, number(found.kl_bound[place]), *(_text(curve[place]) for curve in curves.values())]
        for place, n in enumerate(found.n)
    ]
    print_table(["n", "kl_bound", *curves], rows)


def _text(one: Estimate | None) -> str:
    return " ".join(filter(None, estimate_cells(one)))
