"""`rubricsvc rubrics fit`: weights from people's overall scores or preferences."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rubricsvc.cli import output
from rubricsvc.cli.db import database
from rubricsvc.cli.importing import By, edit_of
from rubricsvc.cli.output import Json, Seed, counted, echo, estimate_cells, print_data, print_json, print_table, show
from rubricsvc.cli.rubric_analysis import JudgeOfScores
from rubricsvc.core.weight_fit import FittedWeight, FitTo, Signs, WeightFit
from rubricsvc.stats import RESAMPLES


def fit(
    ref: Annotated[str, typer.Argument(help="Rubric version to fit.", show_default=False)],
    *,
    to: Annotated[FitTo, typer.Option(help="Overall scores, or the pairs of one person that they order.")],
    job: Annotated[int | None, typer.Option(help="Only what this job scored.")] = None,
    judge: JudgeOfScores = None,
    signs: Annotated[Signs, typer.Option(help="Whether weights keep their signs.")] = "keep",
    save: Annotated[bool, typer.Option("--save", help="Store the weights as a draft version.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Store them even if the rubric was edited since.")] = False,
    by: By = None,
    resamples: Annotated[int, typer.Option(min=0, help="Bootstrap draws of intervals; 0: none.")] = RESAMPLES,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fit a rubric's weights to people's overall scores (label `overall`) or to their preferences.

    It prints each weight with its interval, and how well new and old weights predict people on prompts that were held
    out. No judge is asked. It needs the extra `judging`.
    """
    from rubricsvc.services import fitting

    options: dict[str, Any] = {"to": to, "job_id": job, "judge": judge, "signs": signs, "seed": seed}
    with database() as db:
        with db.read() as session, output.progress_bar("fitting") as bar:
            found = fitting.fit(session, ref, **options, resamples=resamples, on_progress=bar.update)
        if save:
            with db.write() as session:
                added = fitting.save(session, found, by=edit_of(by).by, force=force)
            if added.conflict is not None:
                raise added.conflict
            found = found.model_copy(update={"saved": added.row.ref})
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        _print(found)


def _print(found: WeightFit) -> None:
    what = "score" if found.to == "labels" else "pair"
    show(
        {
            "rubric": found.rubric,
            "judge": found.judge,
            "fitted to": f"{counted(found.n, what)} of {counted(found.prompts, 'prompt')}",
            "left out": f"{found.left_out} with a missing value" if found.left_out else "",
            "penalty": found.penalty,
        }
    )
    print_data("")
    print_table(("criterion", "old", "new", "95%", "note"), [_weight_cells(one) for one in found.weights])
    print_data(f"\nOn held-out prompts ({found.folds} folds):")
    metrics = list(found.gain)
    rows = [[one.weights, *(_cell(one.metrics[name]) for name in metrics)] for one in found.held_out]
    rows.append(["fitted - current", *(_cell(found.gain[name]) for name in metrics)])
    print_table(("weights", *metrics), rows)
    if found.saved == found.rubric:
        echo("nothing stored: the fitted weights are those of this version")
    elif found.saved:
        echo(f"stored as draft {found.saved}; `rubricsvc rubrics diff {found.rubric} {found.saved}` shows the changes")
    else:
        echo("not stored; --save stores the new weights as a draft version")


def _weight_cells(one: FittedWeight) -> list[Any]:
    interval = "" if one.low is None else f"[{one.low:.3g}, {one.high:.3g}]"
    return [output.shorten(one.key, 40), one.old, one.new, interval, "its value never varies" if one.kept else ""]


def _cell(one: Any) -> str:
    return " ".join(filter(None, estimate_cells(one)))
