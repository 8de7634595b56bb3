"""`rubricsvc judges agreement`: a judge's verdicts beside people's labels."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli.database import database
from rubricsvc.cli.figures import cells
from rubricsvc.cli.output import (
    Json,
    cell,
    echo,
    fields_of,
    print_data,
    print_json,
    print_table,
    progress_bar,
    shorten,
    show_list,
)
from rubricsvc.core.judge import Judge
from rubricsvc.core.label import JudgedLabel
from rubricsvc.errors import InvalidError
from rubricsvc.store import jobs, judges, labels

if TYPE_CHECKING:
    from rubricsvc.stats.agreement_report import AgreementReport, CriterionAgreement, Disagreement

JudgeRef = Annotated[str, typer.Argument(help="Name or id of the judge.", show_default=False)]
Job = Annotated[int | None, typer.Option(help="Only what this job scored.")]
Seed = Annotated[int, typer.Option(help="Random seed.")]
Resamples = Annotated[int, typer.Option(min=0, help="Bootstrap draws of each interval; 0: no intervals.")]

HEADINGS = {"balanced_accuracy": "balanced", "macro_f1": "f1", "weighted_kappa": "weighted"}
"""Short column titles."""
MAX_CRITERIA = 30


def agreement(
    judge: JudgeRef,
    *,
    job: Job = None,
    criterion: Annotated[str | None, typer.Option(help="Only labels of this criterion.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Print intervals and confusion of each criterion.")] = False,
    resamples: Resamples = 300,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare a judge's verdicts with people's labels: overall, by criterion, and where they differ most.

    If several people labelled the same, their agreement with each other is printed beside the judge's.
    """
    stored, rows = judged_labels(judge, job, criterion)

    from rubricsvc.stats.agreement_report import agreement_report

    with progress_bar("agreement") as bar:
        report = agreement_report(stored, rows, resamples=resamples, seed=seed, on_progress=bar.update)
    if as_json:
        print_json(asdict(report))
    else:
        _print(report, full)


def judged_labels(ref: str, job: int | None, criterion: str | None = None) -> tuple[Judge, list[JudgedLabel]]:
    """Return the judge, and the labels beside its verdicts.

    Raises:
        InvalidError: There are no labels, or the judge has scored none of what is labelled.
    """
    with database() as db, db.read() as session:
        row = judges.get(session, ref)
        if job is not None:
            jobs.get(session, job)
        rows = labels.judged_labels(session, row.id, job_id=job)
        judge = row.value
    rows = [row for row in rows if criterion in (None, row.label.criterion)]
    if not rows:
        scope = f" of criterion {criterion!r}" if criterion else ""
        scope += f" on what job {job} scored" if job is not None else ""
        raise InvalidError(f"no labels{scope}", hint="import labels with `rubricsvc labels import FILE`")
    if not any(row.verdicts for row in rows):
        hint = f"score it with `rubricsvc jobs submit --judge {judge.name} --wait`"
        raise InvalidError(f"judge {judge.name!r} has scored no labelled completion", hint=hint)
    return judge, rows


def _print(report: AgreementReport, full: bool) -> None:
    state = {True: "calibrated", False: "not calibrated", None: "no readout"}[report.calibrated]
    used = f"{report.labels} labels by {report.annotators} people, {report.overall.pairs} used"
    print_data(f"{report.judge} ({state}): {used}")
    for reason, count in {**report.overall.excluded, **(report.reward.excluded if report.reward else {})}.items():
        print_data(f"excluded: {count} ({reason})")
    print_data("")
    _print_metrics(report.overall)
    if report.reward:
        print_data("\nreward and people's overall scores")
        _print_metrics(report.reward)
    if len(report.criteria) > 1:  # one alone is the same as all
        (_print_each if full else _print_criteria)(report.criteria)
    if report.worst:
        print_data("\nlargest disagreements")
        show_list([_disagreement(one) for one in report.worst], False)


def _disagreement(one: Disagreement) -> dict[str, Any]:
    texts = {"criterion": shorten(one.criterion, 40), "annotator": shorten(one.annotator, 20)}
    reason = shorten(one.rationale or one.note or "-", 60)
    return {"completion": one.completion_id, **texts, **fields_of(one, "label", "judge"), "reason": reason}


def _print_metrics(group: CriterionAgreement) -> None:
    rows = [
        [name, *cells(group.metrics.get(name)), *cells(group.inter_annotator.get(name))]
        for name in dict.fromkeys((*group.metrics, *group.inter_annotator))
    ]
    print_table(("metric", "judge", "95%", "annotators", "95%"), rows)
    _print_notes([group])
    if group.confusion:
        print_data("\nlevel of people (rows) and judge (columns)")
        levels = [cell(level) for level in group.levels]
        counts = [[level, *map(str, row)] for level, row in zip(levels, group.confusion, strict=True)]
        print_table(("", *levels), counts)


def _print_each(criteria: list[CriterionAgreement]) -> None:
    for group in criteria:
        excluded = f"{sum(group.excluded.values())} excluded, {group.annotator_pairs} pairs of annotators"
        print_data(f"\n{shorten(group.name, 80)}: {group.pairs} pairs, {excluded}")
        _print_metrics(group)


def _print_criteria(criteria: list[CriterionAgreement]) -> None:
    """Print the judge's metrics, a line a criterion, with those of annotators among themselves below it."""
    shown = criteria[:MAX_CRITERIA]
    names = [name for name in shown[0].metrics if any(group.metrics[name].value is not None for group in shown)]
    rows = []
    for group in shown:
        first = [shorten(group.name, 40), str(group.pairs), str(sum(group.excluded.values()))]
        rows.append(first + [cells(group.metrics[name])[0] for name in names])
        if group.inter_annotator:
            numbers = [cells(group.inter_annotator.get(name))[0] for name in names]
            rows.append(["  annotators", str(group.annotator_pairs), "", *numbers])
    print_data("")
    print_table(("criterion", "pairs", "excluded", *(HEADINGS.get(name, name) for name in names)), rows)
    _print_notes(shown)
    more = f"{len(criteria) - MAX_CRITERIA} more criteria with --full or --json; " * (len(criteria) > len(shown))
    echo(f"{more}intervals and confusion of each criterion with --full")


def _print_notes(groups: list[CriterionAgreement]) -> None:
    """Print a line for each reason why something is missing, with what is missing; intervals of one group only."""
    missing: dict[str, dict[str, None]] = {}
    for group in groups:
        of = f" of {shorten(group.name, 40)}" if len(groups) > 1 else ""
        for prefix, estimates in (("", group.metrics), ("annotators' ", group.inter_annotator)):
            for name, estimate in estimates.items():
                if estimate.null_reason and (estimate.value is None or not of):
                    what = f"{name}{of}" if estimate.value is None else "intervals"
                    missing.setdefault(estimate.null_reason, {})[f"{prefix}{what}"] = None
    for reason, names in missing.items():
        print_data(f"n/a: {shorten(', '.join(names), 200)}: {reason}")
