"""`rubricsvc bestofn`: what choosing the best of n samples by the rewards of judges gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rubricsvc.cli.output import (
    Json,
    check_picture,
    counted,
    estimate_cells,
    number,
    open_output,
    print_data,
    print_json,
    print_table,
    progress_bar,
    show,
    write_picture,
)
from rubricsvc.cli.service import local_service
from rubricsvc.core.estimate import Estimate
from rubricsvc.schemas.runs import BestOfN


def bestofn(
    *,
    job: Annotated[list[int], typer.Option(help="Job whose rewards choose; repeat it to compare judges.")],
    gold: Annotated[str, typer.Option(help="Id of a job of another judge, labels, or checks.")],
    n: Annotated[
        int | None, typer.Option("--n", min=2, help="Largest n.", show_default="fewest samples of a prompt")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Chart to write: .svg, .png or .html.", show_default="none")] = None,
    as_json: Json = False,
) -> None:
    """Show what the best of n samples is worth by a gold score, if judges choose it by their rewards.

    The samples are the completions of each prompt that all jobs scored. Estimates are unbiased, and no judge is asked.
    """
    from rubricsvc.services.best_of_n import best_of_n

    ending = check_picture(out, ".html") if out is not None else ""
    with local_service() as service, service.db.read() as session, progress_bar("best of n") as bar:
        result = best_of_n(session, job, gold, most=n, on_progress=bar.update)
    if out is not None:
        from rubricsvc.web.best_of_n import picture, render_best_of_n

        if ending == ".html":
            with open_output(out) as stream:
                stream.write(render_best_of_n(result))
        else:
            write_picture(picture(result), out)
    if as_json:
        print_json(result.model_dump(mode="json"))
    else:
        _print(result)


def _print(result: BestOfN) -> None:
    few, many = result.samples
    samples = f"{counted(result.prompts, 'prompt')}, {few if few == many else f'{few} to {many}'} each"
    show({"gold": result.gold_source, "samples": samples, "left out": result.left_out})

    def cells(figures: Sequence[Estimate | None]) -> list[str]:
        return [" ".join(filter(None, estimate_cells(one))) for one in figures]

    def print_curves(title: str, **curves: Sequence[Estimate]) -> None:
        print_data(f"\n{title}:")
        rows = [
            [n, number(result.kl_bound[place]), *cells([curve[place] for curve in curves.values()])]
            for place, n in enumerate(result.n)
        ]
        print_table(["n", "kl_bound", *curves], rows)

    print_data("")
    columns = ["judge", "gold_of_1", f"gold_of_{result.n[-1]}", "gain", "oracle_share", "slope", "less_first"]
    figures = [
        [one.title, *cells([one.gold[0], one.gold[-1], one.gain, one.oracle_share, one.slope, one.difference])]
        for one in result.judges
    ]
    print_table(columns, figures)
    for one in result.judges:
        print_curves(one.title, proxy=one.proxy, gold=one.gold)
    print_curves("Without a judge", oracle=result.oracle, worst=result.worst)
