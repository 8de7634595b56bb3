"""`rubricsvc judges agreement`: a judge held against people's labels."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli.database import database
from rubricsvc.cli.output import Json, cell, echo, print_data, print_json, print_table, progress_bar, shorten, show_list
from rubricsvc.errors import InvalidError

if TYPE_CHECKING:
    from rubricsvc.core.judge import Judge
    from rubricsvc.core.label import JudgedLabel
    from rubricsvc.stats.agreement import Figure
    from rubricsvc.stats.assessment import Assessment, Disagreement, Group

JudgeRef = Annotated[str, typer.Argument(help="The judge's name or id.", show_default=False)]
Job = Annotated[int | None, typer.Option(help="Only what this job scored.")]
Seed = Annotated[int, typer.Option(help="Of the random draws.")]
Resamples = Annotated[int, typer.Option(min=0, help="Bootstrap draws behind each interval; 0: no intervals.")]

HEADINGS = {"balanced_accuracy": "balanced", "macro_f1": "f1", "weighted_kappa": "weighted"}
"""Of the columns by criterion, where a figure's own name is too long for one."""
SHOWN_CRITERIA = 30
NAMED = 5
"""Criteria in one note."""


def agreement(
    judge: JudgeRef,
    *,
    job: Job = None,
    criterion: Annotated[str | None, typer.Option(help="Only labels of this criterion.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Of each criterion intervals and confusion too.")] = False,
    resamples: Resamples = 300,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Hold a judge's verdicts against people's labels: for all criteria, for each, and where they differ most.

    Where several people labelled the same, their agreement with each other stands beside the judge's.
    """
    who, rows = labelled(judge, job, criterion)

    from rubricsvc.stats.assessment import assess

    with progress_bar("agreement") as bar:
        found = assess(who, rows, resamples=resamples, seed=seed, on_progress=bar.update)
    if as_json:
        print_json(asdict(found))
        return
    _put(found, full)


def labelled(ref: str, job: int | None, criterion: str | None = None) -> tuple[Judge, list[JudgedLabel]]:
    """The judge, and the labels beside its verdicts.

    Raises:
        NotFoundError: no such judge or job.
        InvalidError: there are no labels.
    """
    from rubricsvc.store import jobs, judges, labels

    with database() as db, db.read() as session:
        row = judges.get(session, ref)
        if job is not None:
            jobs.get(session, job)
        rows = labels.judged_labels(session, row.id, job_id=job)
        judge = row.value
    rows = [row for row in rows if criterion in (None, row.label.criterion)]
    if not rows:
        of = f" of criterion {criterion!r}" if criterion else ""
        of += f" on what job {job} scored" if job is not None else ""
        raise InvalidError(f"there are no labels{of}", hint="`rubricsvc labels import FILE` brings labels")
    if not any(row.verdicts for row in rows):
        hint = f"`rubricsvc jobs submit --judge {judge.name} --wait` has it judge them"
        raise InvalidError(f"judge {judge.name!r} has judged nothing of what is labelled", hint=hint)
    return judge, rows


def _put(found: Assessment, full: bool) -> None:
    state = {True: "calibrated", False: "not calibrated", None: "no readout"}[found.calibrated]
    print_data(
        f"{found.judge} ({state}): {found.labels} labels by {found.annotators} people, {found.overall.pairs} used"
    )
    for why, count in {**found.overall.left_out, **(found.reward.left_out if found.reward else {})}.items():
        print_data(f"left out: {count} ({why})")
    print_data("")
    _put_figures(found.overall)
    if found.reward:
        print_data("\nreward against people's overall scores")
        _put_figures(found.reward)
    _put_confusion(found.overall)
    if len(found.criteria) > 1:  # one alone is the same as all
        (_put_each if full else _put_criteria)(found.criteria)
    if found.worst:
        print_data("\nfarthest apart")
        show_list([_disagreement(one) for one in found.worst], False)


def _disagreement(one: Disagreement) -> dict[str, Any]:
    return {
        "completion": one.completion_id,
        "criterion": shorten(one.criterion, 40),
        "person": shorten(one.annotator, 20),
        "label": one.label,
        "judge": one.judge,
        "why": shorten(one.rationale or one.note or "-", 60),
    }


def _put_figures(group: Group) -> None:
    rows = [
        [name, *_told(group.figures.get(name)), *_told(group.people.get(name))]
        for name in dict.fromkeys((*group.figures, *group.people))
    ]
    print_table(("figure", "judge", "95%", "people", "95%"), rows)
    _put_notes([group])


def _put_each(criteria: list[Group]) -> None:
    for group in criteria:
        left_out = sum(group.left_out.values())
        print_data(
            f"\n{shorten(group.name, 80)}: {group.pairs} pairs, {left_out} left out, {group.people_pairs} among people"
        )
        _put_figures(group)
        _put_confusion(group)


def _put_criteria(criteria: list[Group]) -> None:
    """The figures of the judge, a line a criterion, and of people among themselves below it."""
    print_data("")
    shown = criteria[:SHOWN_CRITERIA]
    names = [name for name in shown[0].figures if any(group.figures[name].value is not None for group in shown)]
    rows = []
    for group in shown:
        numbers = [_number(group.figures[name]) for name in names]
        rows.append([shorten(group.name, 40), str(group.pairs), str(sum(group.left_out.values())), *numbers])
        if group.people:
            numbers = [_number(group.people.get(name)) for name in names]
            rows.append(["  people", str(group.people_pairs), "", *numbers])
    print_table(("criterion", "pairs", "left out", *(HEADINGS.get(name, name) for name in names)), rows)
    _put_notes(shown, intervals=False)
    more = f"{len(criteria) - SHOWN_CRITERIA} more criteria are in --full and --json; " * (len(criteria) > len(shown))
    echo(f"{more}--full tells each criterion's intervals and confusion")


def _put_notes(groups: list[Group], *, intervals: bool = True) -> None:
    """Why something in a table is n/a, or not there: a line for each reason, with all that it holds for."""
    found: dict[tuple[str, str], list[str]] = {}
    for group in groups:
        for why, missing in _missing(group, intervals).items():
            what = "all figures" if group.figures.keys() <= missing.keys() else ", ".join(missing)
            found.setdefault((what, why), []).append(shorten(group.name, 40))
    for (what, why), whose in found.items():
        more = f" and {len(whose) - NAMED} more" if len(whose) > NAMED else ""
        of = f" of {', '.join(whose[:NAMED])}{more}" if len(groups) > 1 else ""
        print_data(f"n/a: {what}{of}: {why}")


def _missing(group: Group, intervals: bool) -> dict[str, dict[str, None]]:
    """What is missing, by reason, in order and each once."""
    told = [(name, figure.null_reason) for name, figure in group.figures.items()]
    for name, figure in group.people.items():
        of_judge = group.figures.get(name)
        if of_judge is None or of_judge.null_reason != figure.null_reason:
            told.append((f"people's {name}", figure.null_reason))
    if intervals:
        said = {figure.why_no_interval for figure in group.figures.values()}
        among = {figure.why_no_interval for figure in group.people.values()} - said
        told += [(what, why) for what, whys in (("intervals", said), ("people's intervals", among)) for why in whys]
    found: dict[str, dict[str, None]] = {}
    for what, why in told:
        if why:
            found.setdefault(why, {})[what] = None
    return found


def _put_confusion(group: Group) -> None:
    if not group.confusion:
        return
    print_data("\npeople's level (rows), the judge's (columns)")
    levels = [cell(level) for level in group.levels]
    rows = [[level, *map(str, counts)] for level, counts in zip(levels, group.confusion, strict=True)]
    print_table(("", *levels), rows)


def _told(figure: Figure | None) -> list[str]:
    """Two cells: the number, and its interval."""
    return [_number(figure), _interval(figure)]


def _number(figure: Figure | None) -> str:
    if figure is None:
        return ""
    return "n/a" if figure.value is None else f"{figure.value:.3f}"


def _interval(figure: Figure | None) -> str:
    if figure is None or figure.value is None:
        return ""
    return f"[{figure.low:.2f}, {figure.high:.2f}]" if figure.low is not None and figure.high is not None else "[n/a]"
