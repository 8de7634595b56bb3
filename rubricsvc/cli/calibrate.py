"""`rubricsvc judges calibrate`: make a judge's probabilities mean what people's labels say they mean."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli.agreement import Job, JudgeRef, Resamples, Seed, labelled
from rubricsvc.cli.database import database
from rubricsvc.cli.output import (
    Json,
    cell,
    echo,
    ignore_broken_pipe,
    open_output,
    print_json,
    print_table,
    show,
    show_list,
)
from rubricsvc.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rubricsvc.core.judge import Judge
    from rubricsvc.core.label import JudgedLabel
    from rubricsvc.stats.calibration_fit import Fitted


def calibrate(
    judge: JudgeRef,
    *,
    name: Annotated[str | None, typer.Option("--as", help="Name of the new judge; else NAME-calibrated.")] = None,
    job: Job = None,
    method: Annotated[str, typer.Option(help="auto, temperature, platt or isotonic.")] = "auto",
    held_out: Annotated[
        float, typer.Option(min=0.05, max=0.9, help="The share of prompts to tell the effect on.")
    ] = 0.3,
    overall: Annotated[
        bool, typer.Option("--overall", help="Instead: report a regression of people's overall scores on all criteria.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="--overall: write the regression to this file, for Python (docs/judges.md).")
    ] = None,
    resamples: Resamples = 300,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Calibrate a readout judge on labels; the calibrated one is kept under a name of its own.

    It takes labels on at least 10 prompts that the judge has scored. Each family of criteria (first tag, else kind of
    scale) that has at least 20 labels gets a curve. The method with the least cross-validated log loss is taken; what
    it changes is told on held-out prompts, which neither method nor curve has seen. With --overall no judge is made: no
    reward is changed by a regression.
    """
    who, rows = labelled(judge, job)
    if overall:
        _overall(rows, out, resamples, seed, as_json)
        return
    _refuse(who, method)
    if who.calibration is not None:
        echo(f"{who.name} is calibrated already: its curves are fitted anew, from what the model itself gave")
    from rubricsvc.stats.calibration_fit import METHODS
    from rubricsvc.stats.calibration_fit import calibrate as fit

    methods = [known for known in METHODS if method in ("auto", known)]
    fitted = fit(rows, held_out=held_out, seed=seed, methods=methods)
    made = _keep(who, name or f"{who.name}-calibrated", fitted)
    if as_json:
        print_json({"judge": made, "families": [asdict(one) | {"curve": _curve(one)} for one in fitted]})
        return
    with ignore_broken_pipe():
        show_list([_row(one) for one in fitted], False)
    if made is None:
        hint = "label more answers, good and bad ones of each family; the column why_not says what a family lacks"
        raise InvalidError("no family of criteria could be calibrated, no judge was made", hint=hint)
    for one in fitted:
        if one.before and one.after and one.after.log_loss > one.before.log_loss:
            echo(
                f"{one.family}: worse on the held-out prompts than without a curve: label more before you use {made!r}"
            )
    echo(f"kept as judge {made!r}; its values are calibrated, Verdict.probability stays as the model gave it")


def _refuse(judge: Judge, method: str) -> None:
    if judge.mode != "readout":
        hint = "calibrate the readout judges that it is made of, or use --mode readout"
        raise InvalidError(f"judge {judge.name!r} is no readout: it gives no probabilities to calibrate", hint=hint)
    if method not in ("auto", "temperature", "platt", "isotonic"):
        raise InvalidError(f"no method {method!r}", hint="there are: auto, temperature, platt, isotonic")


def _keep(judge: Judge, name: str, fitted: Sequence[Fitted]) -> str | None:
    """The calibrated judge's name; None where there is no curve."""
    from rubricsvc.core.calibration import Calibration
    from rubricsvc.store import judges

    curves = {one.family: one.curve for one in fitted if one.curve is not None}
    if not curves:
        return None
    made = judge.model_copy(update={"name": name, "calibration": Calibration(families=curves)})
    with database() as db, db.write() as session:
        judges.add(session, made)
    return made.name


def _curve(one: Fitted) -> dict[str, Any] | None:
    return one.curve.model_dump(mode="json", exclude_defaults=True) if one.curve else None


def _row(one: Fitted) -> dict[str, Any]:
    row: dict[str, Any] = {
        "family": one.family,
        "labels": one.labels,
        "method": one.curve.method if one.curve else None,
    }
    for figure in ("ece", "brier", "log_loss"):
        before, after = (getattr(loss, figure) if loss else None for loss in (one.before, one.after))
        row[figure] = f"{cell(before)} → {cell(after)}"
    return row | {"held_out": one.after.n if one.after else None, "why_not": one.null_reason}


def _overall(rows: list[JudgedLabel], out: Path | None, resamples: int, seed: int, as_json: bool) -> None:
    from rubricsvc.stats.overall import fit_judged

    found = fit_judged(rows, resamples=resamples, seed=seed)
    if out is not None:
        with open_output(out) as stream:
            stream.write(found.overall.model_dump_json(indent=1) + "\n")
    if as_json:
        print_json(asdict(found) | {"overall": found.overall.model_dump(mode="json")})
        return
    show({"scores": found.scores, "people": found.people, "prompts": found.prompts}, False)
    told = {
        "the judge's own score": found.raw,
        "regression, person unknown": found.pooled,
        "the person's habit alone": found.habit,
        "regression, the person's offset known": found.shifted,
        "regression, person known": found.personal,
    }
    print_table(
        ("pearson with people's overall scores", "r", "95%"),
        [
            [what, cell(figure.value), f"[{cell(figure.low)}, {cell(figure.high)}]"]
            for what, figure in told.items()
            if figure is not None
        ],
    )
    for what, figure in told.items():
        if figure is not None and figure.null_reason:
            echo(f"{what}: {figure.null_reason}")
    weights = found.overall.weights.items()
    print_table(("criterion", "weight"), [[key, cell(weight)] for key, weight in weights])
