"""`rubricsvc judges calibrate`: fit a judge's probabilities to people's labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli.agreement import Job, JudgeRef, Resamples, Seed, judged_labels
from rubricsvc.cli.database import database
from rubricsvc.cli.figures import cells
from rubricsvc.cli.output import (
    Json,
    cell,
    echo,
    fields_of,
    ignore_broken_pipe,
    open_output,
    print_json,
    print_table,
    show,
    show_list,
)
from rubricsvc.core.calibration import Calibration
from rubricsvc.core.judge import Judge
from rubricsvc.core.label import JudgedLabel
from rubricsvc.errors import InvalidError
from rubricsvc.store import judges

if TYPE_CHECKING:
    from rubricsvc.stats.calibration_fit import FittedFamily


def calibrate(
    judge: JudgeRef,
    *,
    name: Annotated[
        str | None, typer.Option("--as", help="Name of the new judge.", show_default="NAME-calibrated")
    ] = None,
    job: Job = None,
    method: Annotated[str, typer.Option(help="auto, temperature, platt or isotonic.")] = "auto",
    held_out: Annotated[
        float, typer.Option(min=0.05, max=0.9, help="Share of the prompts to measure the effect on.")
    ] = 0.3,
    overall: Annotated[
        bool, typer.Option("--overall", help="Instead, regress people's overall scores on all criteria.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write the regression of --overall to this file (docs/judges.md).")
    ] = None,
    resamples: Resamples = 300,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Calibrate a readout judge on labels, and store the calibrated judge under a new name.

    It needs labels on at least 10 prompts that the judge has scored. Each family of criteria (first tag, else kind of
    scale) with at least 20 labels gets a curve. The method with the lowest cross-validated log loss is used, and its
    effect is measured on held-out prompts. With --overall no judge is stored.
    """
    stored, rows = judged_labels(judge, job)
    if overall:
        _overall(rows, out, resamples, seed, as_json)
        return
    _check(stored, method)
    if stored.calibration is not None:
        echo(f"{stored.name} is calibrated: new curves are fitted to the model's own probabilities")
    from rubricsvc.stats.calibration_fit import METHODS
    from rubricsvc.stats.calibration_fit import calibrate as fit

    families = fit(rows, held_out=held_out, seed=seed, methods=[m for m in METHODS if method in ("auto", m)])
    calibrated = _store(stored, name or f"{stored.name}-calibrated", families)
    if as_json:
        print_json({"judge": calibrated, "families": [asdict(one) | {"curve": _curve(one)} for one in families]})
        return
    with ignore_broken_pipe():
        show_list([_row(one) for one in families], False)
    if calibrated is None:
        hint = "label more completions, good and bad ones of each family; see the column null_reason"
        raise InvalidError("no family of criteria could be calibrated; no judge was stored", hint=hint)
    for one in families:
        if one.before and one.after and one.after.log_loss > one.before.log_loss:
            echo(f"{one.family}: worse on held-out prompts than uncalibrated; add labels before you use {calibrated!r}")
    echo(f"stored as judge {calibrated!r}")


def _check(judge: Judge, method: str) -> None:
    if judge.mode != "readout":
        hint = "calibrate its readout members, or use a judge of mode readout"
        raise InvalidError(
            f"judge {judge.name!r} has no probabilities to calibrate: its mode is {judge.mode}", hint=hint
        )
    if method not in ("auto", "temperature", "platt", "isotonic"):
        raise InvalidError(f"no method {method!r}", hint="there are: auto, temperature, platt, isotonic")


def _store(judge: Judge, name: str, families: Sequence[FittedFamily]) -> str | None:
    """Store the calibrated judge and return its name; None without a curve."""
    curves = {one.family: one.curve for one in families if one.curve is not None}
    if not curves:
        return None
    calibrated = judge.model_copy(update={"name": name, "calibration": Calibration(families=curves)})
    with database() as db, db.write() as session:
        judges.add(session, calibrated)
    return calibrated.name


def _curve(one: FittedFamily) -> dict[str, Any] | None:
    return one.curve.model_dump(mode="json", exclude_defaults=True) if one.curve else None


def _row(one: FittedFamily) -> dict[str, Any]:
    row = fields_of(one, "family", "labels") | {"method": one.curve and one.curve.method}
    for name in ("ece", "brier", "log_loss"):
        before, after = (getattr(loss, name) if loss else None for loss in (one.before, one.after))
        row[name] = f"{cell(before)} → {cell(after)}"
    return row | {"held_out": one.after.n if one.after else None, "null_reason": one.null_reason}


def _overall(rows: list[JudgedLabel], out: Path | None, resamples: int, seed: int, as_json: bool) -> None:
    from rubricsvc.stats.overall import fit_to_labels

    fit = fit_to_labels(rows, resamples=resamples, seed=seed)
    if out is not None:
        with open_output(out) as stream:
            stream.write(fit.model.model_dump_json(indent=1) + "\n")
    if as_json:
        print_json(asdict(fit) | {"model": fit.model.model_dump(mode="json")})
        return
    show(fields_of(fit, "scores", "people", "prompts"), False)
    estimates = {
        "judge's own score": fit.judge,
        "regression, person unknown": fit.no_person,
        "mean of the person": fit.person_mean,
        "regression with the person's offset": fit.person_offset,
    }
    known = {name: estimate for name, estimate in estimates.items() if estimate is not None}
    table = [[name, *cells(estimate)] for name, estimate in known.items()]
    print_table(("pearson with people's overall scores", "r", "95%"), table)
    for name, estimate in known.items():
        if estimate.null_reason:
            echo(f"{name}: {estimate.null_reason}")
    print_table(("criterion", "weight"), [[key, cell(weight)] for key, weight in fit.model.weights.items()])
