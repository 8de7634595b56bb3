"""`rubricsvc bestofn`: what choosing the best of n samples by the rewards of judges gives."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rubricsvc.cli.output import Json, open_output, progress_bar, show
from rubricsvc.cli.service import local_service


def bestofn(
    *,
    job: Annotated[list[int], typer.Option(help="Job whose rewards choose; repeat it to compare judges.")],
    gold: Annotated[str, typer.Option(help="Id of a job of another judge, or labels.")],
    n: Annotated[
        int | None, typer.Option("--n", min=2, help="Largest n.", show_default="fewest samples of a prompt")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="HTML page of the curves to write.", show_default="none")] = None,
    as_json: Json = False,
) -> None:
    """Show what the best of n samples is worth by a gold score, if judges choose it by their rewards.

    The samples are the completions of each prompt that all jobs scored. Estimates are unbiased, and no judge is asked.
    """
    from rubricsvc.services.best_of_n import best_of_n
    from rubricsvc.web.run import render_best_of_n

    with local_service() as service, service.db.read() as session, progress_bar("best of n") as bar:
        result = best_of_n(session, job, gold, most=n, on_progress=bar.update)
    if out is not None:
        with open_output(out) as stream:
            stream.write(render_best_of_n(result))
    show(result, as_json)
