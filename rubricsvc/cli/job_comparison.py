"""`rubricsvc jobs compare`: two jobs on what both scored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from rubricsvc.cli.db import database
from rubricsvc.cli.output import (
    Json,
    cell,
    counted,
    echo,
    estimate_cells,
    first_names,
    print_data,
    print_json,
    print_table,
    progress_bar,
    shorten,
    show,
)
from rubricsvc.core.estimate import Estimate
from rubricsvc.core.job_comparison import ComparedJob, CriterionComparison, JobComparison, LeftOut, Moved, PairedBy

MOST_ROWS = 20
_REASONS = {"not_in_job": "not in", "unfinished": "not finished in", "no_reward": "no reward in"}


def compare(
    a: Annotated[int, typer.Argument(help="Id of the job to compare with.", show_default=False)],
    b: Annotated[int, typer.Argument(help="Id of the other job.", show_default=False)],
    *,
    by: Annotated[
        PairedBy | None,
        typer.Option(help="What to pair.", show_default="completions, or prompts if the jobs share no completion"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare two jobs: judges or rubric versions on the same completions, or policies on the same prompts.

    Differences are B less A. Intervals treat prompts as independent, and need the extra `judging`.
    """
    from rubricsvc.services import comparing

    with database() as db, db.read() as session, progress_bar("comparing") as bar:
        found = comparing.compare(session, a, b, by=by, on_progress=bar.update)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        _print(found)


def _print(found: JobComparison) -> None:
    columns = ["", "job", "judge", "rubrics", "policies", "completions", "rewards", "mean_of_paired"]
    print_table(columns, [_job_cells("A", found.a), _job_cells("B", found.b)])
    print_data("")
    show(_summary(found))
    if found.criteria:
        print_data("\nCriteria (to_met, to_unmet: verdicts that cross 0.5 from A to B):")
        headings = ["rubric", "criterion", "paired", "mean_a", "mean_b", "to_met", "to_unmet", "note"]
        print_table(headings, [_criterion_cells(row) for row in found.criteria[:MOST_ROWS]])
        if len(found.criteria) > MOST_ROWS:
            echo(f"… and {len(found.criteria) - MOST_ROWS} more criteria; --json prints all")
    if found.moved:
        print_data("\nMoved most:")
        headings = [found.paired_by, "external_id", "policy", "a", "b", "difference", "criteria", "prompt"]
        print_table(headings, [_moved_cells(row) for row in found.moved])
    for hint in _hints(found):
        echo(f"hint: {hint}")


def _job_cells(name: str, job: ComparedJob) -> list[Any]:
    names = (first_names(job.rubrics), first_names([policy for policy in job.policies if policy]))
    return [name, job.job_id, job.judge, *names, job.completions, job.rewards, job.mean_reward]


def _summary(found: JobComparison) -> dict[str, Any]:
    prompts = counted(found.prompts, "prompt")
    paired = prompts if found.paired_by == "prompt" else f"{counted(found.paired, 'completion')} of {prompts}"
    return {
        "differs": ", ".join(found.differs) or "nothing: the same judge, rubrics and completions",
        "paired": paired,
        "left out": ", ".join(map(_left_out, found.left_out)),
        "mean difference (B - A)": _estimate(found.mean_difference),
        "Kendall's tau-b": _estimate(found.kendall_tau),
        "Spearman's rho": _estimate(found.spearman),
        "Kendall's tau-b within prompts": _estimate(found.kendall_tau_within_prompts),
        "verdicts that cross 0.5": sum(row.flips for row in found.criteria),
    }


def _left_out(row: LeftOut) -> str:
    return f"{row.count} {_REASONS[row.reason]} job {' and '.join(map(str, row.job_ids))}"


def _estimate(found: Estimate) -> str:
    if found.value is None:
        return f"- ({found.null_reason})"
    value, interval = estimate_cells(found, digits=4)
    return f"{value} {interval or f'({found.null_reason})'}"


def _criterion_cells(row: CriterionComparison) -> list[Any]:
    key = row.key_a if row.key_a == row.key_b else f"{row.key_a} → {row.key_b}"
    means = (row.mean_a, row.mean_b)
    return [row.rubric, key, row.paired, *means, row.to_met, row.to_unmet, "reworded" if row.reworded else ""]


def _moved_cells(row: Moved) -> list[Any]:
    criteria = ", ".join(f"{one.criterion} {one.change:+.3f}" for one in row.criteria)
    entity, external_id = row.completion_id, row.completion_external_id
    if entity is None:
        entity, external_id = row.prompt_id, row.prompt_external_id
    policies = ", ".join(policy for policy in row.policies if policy)
    rewards = (row.reward_a, row.reward_b, cell(row.difference))
    return [entity, external_id or "", policies, *rewards, criteria, shorten(row.prompt, 60)]


def _hints(found: JobComparison) -> Iterator[str]:
    if found.a.job_id == found.b.job_id and len(found.a.policies) > 1:
        submit = f"`rubricsvc jobs submit --judge {found.a.judge} --policy NAME`"
        yield f"to compare the job's policies, {submit} for each (stored verdicts are reused), then compare those jobs"
    a, b = set(found.a.rubrics), set(found.b.rubrics)
    only_a, only_b = sorted(a - b), sorted(b - a)
    if only_a and only_b:
        yield f"`rubricsvc rubrics diff {only_a[0]} {only_b[0]}` shows what changed in the rubric"
    for row in found.left_out:
        if row.reason == "unfinished":
            yield f"wait for the rest: `rubricsvc jobs wait {row.job_ids[0]}`"
        elif row.reason == "no_reward":
            yield f"`rubricsvc jobs export {row.job_ids[0]}` shows null_reason"
    only_in_one = sum(row.count for row in found.left_out if row.reason == "not_in_job")
    if found.paired_by == "completion" and only_in_one > found.paired:
        yield "most completions are in one job only: compare policies with --by prompt"
