"""`rubricsvc judges agreement` and `judges calibrate`: a judge's verdicts beside people's labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rubricsvc.cli import output
from rubricsvc.cli.db import database
from rubricsvc.cli.output import (
    Json,
    Seed,
    cell,
    counted,
    echo,
    estimate_cells,
    print_data,
    print_json,
    print_table,
    shorten,
)
from rubricsvc.core.calibration import Calibration
from rubricsvc.core.judge import Judge
from rubricsvc.core.label import JudgedLabel
from rubricsvc.errors import InvalidError
from rubricsvc.stats import RESAMPLES
from rubricsvc.store import jobs, judges
from rubricsvc.store.labels import judged_labels

if TYPE_CHECKING:
    from rubricsvc.stats.agreement_report import AgreementReport, CriterionAgreement, MeanAgreement
    from rubricsvc.stats.calibration_fit import FittedFamily

JudgeRef = Annotated[str, typer.Argument(help="Name or id of the judge.", show_default=False)]
Job = Annotated[int | None, typer.Option(help="Only what this job scored.")]
Resamples = Annotated[int, typer.Option(min=0, help="Bootstrap draws of each interval; 0: no intervals.")]

MAX_CRITERIA = 30


def agreement(
    judge: JudgeRef,
    *,
    job: Job = None,
    criterion: Annotated[str | None, typer.Option(help="Only this criterion, with its confusion.")] = None,
    resamples: Resamples = RESAMPLES,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare a judge's verdicts with people's labels: mean over criteria, each, pooled, and where they differ most.

    If several people labelled the same, their agreement with each other is printed beside the judge's.
    """
    stored, rows = _judged_labels(judge, job, criterion)

    from rubricsvc.stats.agreement_report import agreement_report

    with output.progress_bar("agreement") as bar:
        report = agreement_report(stored, rows, resamples=resamples, seed=seed, on_progress=bar.update)
    if as_json:
        print_json(asdict(report))
    else:
        _print_report(report)


def _judged_labels(ref: str, job: int | None, criterion: str | None = None) -> tuple[Judge, list[JudgedLabel]]:
    """Return the judge, and the labels beside its verdicts."""
    with database() as db, db.read() as session:
        row = judges.get(session, ref)
        if job is not None:
            jobs.scoring(session, job)
        rows = judged_labels(session, row.id, job_id=job)
        judge = row.value
    rows = [row for row in rows if criterion in (None, row.label.criterion)]
    if not rows:
        scope = f" of criterion {criterion!r}" if criterion else ""
        scope += f" on what job {job} scored" if job is not None else ""
        raise InvalidError(f"no labels{scope}", hint="import labels with `rubricsvc labels import FILE`")
    if not any(row.verdicts for row in rows):
        hint = (
            f"score them with `rubricsvc jobs submit --judge {judge.name} --wait`; a label counts for each rubric "
            "version whose criterion has the same text, scale, reference and passages"
        )
        raise InvalidError(f"judge {judge.name!r} has judged none of the labelled criteria", hint=hint)
    return judge, rows


def _print_report(report: AgreementReport) -> None:
    from rubricsvc.stats import MIN_PAIRS

    state = {True: "calibrated", False: "not calibrated", None: "no readout"}[report.calibrated]
    people = "1 person" if report.annotators == 1 else f"{report.annotators} people"
    used = f"{counted(report.labels, 'label')} by {people}, {report.pooled.pairs} used"
    print_data(f"{report.judge} ({state}): {used}")
    for reason, count in {**report.pooled.excluded, **(report.reward.excluded if report.reward else {})}.items():
        print_data(f"excluded: {count} ({reason})")
    if len(report.criteria) > 1:  # one alone is its own mean
        _print_mean(report.mean)
        print_data(f"\n{report.pooled.name}: favours a judge that only repeats how often each criterion is met")
    else:
        print_data("")
    _print_metrics(report.pooled)
    if report.reward:
        print_data("\nreward and people's overall scores")
        _print_metrics(report.reward)
    if len(report.criteria) > 1:
        _print_criteria(report.criteria)
    if report.worst:
        print_data("\nlargest disagreements")
        rows = []
        for one in report.worst:
            criterion, annotator = shorten(one.criterion, 40), shorten(one.annotator, 20)
            reason = shorten(one.rationale or one.note or "-", 60)
            ids = (one.completion_id, one.completion_external_id or "")
            rows.append([*ids, criterion, annotator, one.label, one.judge, reason])
        print_table(("completion", "external_id", "criterion", "annotator", "label", "judge", "reason"), rows)
    if report.pooled.pairs < MIN_PAIRS:
        echo(f"hint: import more labels with `rubricsvc labels import FILE`; estimates need {MIN_PAIRS} or more")


def _print_mean(mean: MeanAgreement) -> None:
    print_data("\nmean over criteria, each counting alike")
    rows = [
        [name, mean.criteria[name], *estimate_cells(judge), *estimate_cells(mean.inter_annotator.get(name))]
        for name, judge in mean.metrics.items()
        if judge.value is not None
    ]
    if rows:
        print_table(("metric", "criteria", "judge", "95%", "annotators", "95%"), rows)
    else:
        print_data("n/a: no criterion has enough labels for an estimate")


def _print_metrics(group: CriterionAgreement) -> None:
    """Print the known metrics, the reasons why others are missing, and the confusion."""
    missing: dict[str, list[str]] = {}
    for prefix, estimates in (("", group.metrics), ("annotators' ", group.inter_annotator)):
        for name, estimate in estimates.items():
            if estimate.null_reason:
                what = name if estimate.value is None else "intervals"
                missing.setdefault(estimate.null_reason, []).append(prefix + what)
    both = [(name, group.metrics.get(name), group.inter_annotator.get(name)) for name in group.metrics]
    rows = [
        [name, *estimate_cells(judge), *estimate_cells(annotators)]
        for name, judge, annotators in both
        if any(estimate and estimate.value is not None for estimate in (judge, annotators))
    ]
    print_table(("metric", "judge", "95%", "annotators", "95%"), rows)
    for reason, names in missing.items():
        print_data(f"n/a: {shorten(', '.join(dict.fromkeys(names)), 200)}: {reason}")
    if group.between_levels:
        labels = counted(group.between_levels, "label")
        print_data(
            f"{labels} between the levels: accuracy, F1, kappa and alpha take the closest level, others the value"
        )
    if group.confusion:
        print_data("\nlevel of people (rows) and judge (columns)")
        counts = [[level, *row] for level, row in zip(group.levels, group.confusion, strict=True)]
        print_table(("", *map(cell, group.levels)), counts)


def _print_criteria(criteria: list[CriterionAgreement]) -> None:
    """Print the judge's metrics, a line a criterion, with those of annotators among themselves below it."""
    shown = criteria[:MAX_CRITERIA]
    names = [name for name in shown[0].metrics if any(group.metrics[name].value is not None for group in shown)]
    rows: list[list[Any]] = []
    for group in shown:
        metrics = [estimate_cells(group.metrics[name])[0] for name in names]
        rows.append([shorten(group.name, 40), group.pairs, sum(group.excluded.values()), *metrics])
        if group.inter_annotator:
            metrics = [estimate_cells(group.inter_annotator.get(name))[0] for name in names]
            rows.append(["- annotators", group.annotator_pairs, "", *metrics])
    print_data("")
    print_table(("criterion", "pairs", "excluded", *(name.partition("_")[0] for name in names)), rows)
    more = f"{len(criteria) - MAX_CRITERIA} more criteria with --json; " * (len(criteria) > MAX_CRITERIA)
    echo(f"{more}intervals, confusion and reasons for n/a with --criterion NAME")


def calibrate(
    judge: JudgeRef,
    *,
    name: Annotated[str | None, typer.Option("--as", help="New judge.", show_default="NAME-calibrated")] = None,
    job: Job = None,
    method: Annotated[Literal["auto", "temperature", "platt", "isotonic"], typer.Option(help="The curve.")] = "auto",
    held_out: Annotated[float, typer.Option(min=0.05, max=0.9, help="Share of the prompts to measure on.")] = 0.3,
    overall: Annotated[bool, typer.Option("--overall", help="Instead, regress people's overall scores.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the regression of --overall to this file.")] = None,
    resamples: Resamples = RESAMPLES,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Calibrate a readout judge on labels, and store the calibrated judge under a new name.

    It needs labels on at least 10 prompts that the judge has scored. Each family of criteria (first tag, else kind of
    scale) with at least 20 labels gets a curve. The method with the lowest cross-validated log loss is used, and its
    effect is measured on held-out prompts. With --overall no judge is stored.
    """
    stored, rows = _judged_labels(judge, job)
    if overall:
        _fit_overall(rows, out, resamples, seed, as_json)
        return
    if stored.mode != "readout":
        hint = "calibrate its readout members, or use a judge of mode readout"
        raise InvalidError(f"judge {stored.name!r} has no probabilities: its mode is {stored.mode}", hint=hint)
    if stored.calibration is not None:
        echo(f"{stored.name} is calibrated: new curves are fitted to the model's own probabilities")

    from rubricsvc.stats.calibration_fit import METHODS
    from rubricsvc.stats.calibration_fit import calibrate as fit

    families = fit(rows, held_out=held_out, seed=seed, methods=METHODS if method == "auto" else [method])
    curves = {one.family: one.curve for one in families if one.curve is not None}
    name = name or f"{stored.name}-calibrated"
    if curves:
        calibrated = stored.model_copy(update={"name": name, "calibration": Calibration(families=curves)})
        with database() as db, db.write() as session:
            judges.add(session, calibrated)
    if as_json:
        dumped = [
            asdict(one) | {"curve": one.curve and one.curve.model_dump(mode="json", exclude_defaults=True)}
            for one in families
        ]
        print_json({"judge": name if curves else None, "families": dumped})
        return
    with output.ignore_broken_pipe():
        _print_families(families)
    if not curves:
        hint = "label more completions, good and bad ones of each family; see the column null_reason"
        raise InvalidError("no family of criteria could be calibrated; no judge was stored", hint=hint)
    echo(f"stored as judge {name!r}")


def _print_families(families: Sequence[FittedFamily]) -> None:
    rows = []
    for one in families:
        row = output.fields_of(one, "family", "labels") | {"method": one.curve and one.curve.method}
        for loss in ("ece", "brier", "log_loss"):
            row[loss] = " → ".join(cell(getattr(each, loss, None)) for each in (one.before, one.after))
        rows.append(row | {"held_out": one.after and one.after.n, "null_reason": one.null_reason})
    output.show_list(rows)
    for one in families:
        if one.before and one.after and one.after.log_loss > one.before.log_loss:
            echo(f"{one.family}: worse on held-out prompts than uncalibrated; add labels before you use the new judge")


def _fit_overall(rows: list[JudgedLabel], out: Path | None, resamples: int, seed: int, as_json: bool) -> None:
    from rubricsvc.stats.overall import fit_to_labels

    fit = fit_to_labels(rows, resamples=resamples, seed=seed)
    if out is not None:
        with output.open_output(out) as stream:
            stream.write(fit.model.model_dump_json(indent=1) + "\n")
    if as_json:
        print_json(asdict(fit) | {"model": fit.model.model_dump(mode="json")})
        return
    output.show(output.fields_of(fit, "scores", "people", "prompts"))
    estimates = {
        "judge's own score": fit.judge,
        "regression, person unknown": fit.no_person,
        "mean of the person": fit.person_mean,
        "regression with the person's offset": fit.person_offset,
    }
    known = {name: estimate for name, estimate in estimates.items() if estimate is not None}
    table = [[name, *estimate_cells(estimate)] for name, estimate in known.items()]
    print_table(("pearson with people's overall scores", "r", "95%"), table)
    for name, estimate in known.items():
        if estimate.null_reason:
            echo(f"{name}: {estimate.null_reason}")
    print_table(("criterion", "weight"), fit.model.weights.items())
