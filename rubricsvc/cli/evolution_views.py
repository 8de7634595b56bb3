"""How evolutions are printed."""

from __future__ import annotations

from typing import Any

from rubricsvc.cli import output
from rubricsvc.cli.output import counted, echo, estimate_cells, number, print_data, print_table, show
from rubricsvc.core.evolution import UNITS, CandidateSummary, EvolutionReport, EvolutionSummary, HeldOutResult

MOST_CHANGES = 30


def scores_note(one: EvolutionSummary) -> str:
    """Return the best score beside that of the start."""
    return "" if one.best_score is None else f"best {one.best_score:.4f}, start {number(one.start_score, digits=4)}"


def evolution_cells(one: EvolutionSummary) -> dict[str, Any]:
    """Return an evolution as a row of a list."""
    difference = one.difference
    return {
        "id": one.id,
        "rubric": one.rubric,
        "judge": one.judge,
        "objective": one.objective,
        "status": one.status,
        "candidates": one.candidates,
        "planned": one.planned + 1,
        "start": one.start_score,
        "best": one.best_score,
        "held_out": difference.value if difference else None,
        "low": difference.low if difference else None,
        "high": difference.high if difference else None,
        "gain": one.gain,
        "cost": one.cost,
    }


def closing_record(report: EvolutionReport) -> dict[str, Any]:
    """Return what JSON has: a summary, and everything but the candidates that are no ancestors of the best one.

    ``judge`` is the name of the start's judge; the best candidate, and its own judge if it has one, are
    ``best_candidate`` and ``best_judge``.
    """
    data = report.model_dump(mode="json", exclude={"candidates"})
    summary: dict[str, Any] = data.pop("summary")
    best = {"best_candidate": data.pop("best"), "best_judge": data.pop("judge")}
    return summary | data | best


def print_evolution(report: EvolutionReport) -> None:
    """Print an evolution: parts, lineage and changes of the best candidate, and the held-out comparison."""
    one, parts = report.summary, report.parts
    unit = UNITS[one.objective]
    show(
        {
            "evolution": one.id,
            "status": one.status,
            "rubric": one.rubric,
            "judge": one.judge,
            "objective": one.objective,
            "search part": f"{counted(parts.search_units, unit)} of {counted(parts.search_prompts, 'prompt')}",
            "held out": f"{counted(parts.held_out_units, unit)} of {counted(parts.held_out_prompts, 'prompt')}",
            "left out": f"{parts.left_out} labelled, without a reward of the start" if parts.left_out else "",
            "candidates": f"{one.candidates}, of {one.planned + 1} planned",
            "search score": scores_note(one),
            "cost": f"${one.cost:.4g}" if one.cost else "",
        }
    )
    if report.lineage:
        print_data("\nHow the best candidate was made:")
        print_table(
            ("candidate", "generation", "island", "operator", "parents", "criteria", "score"),
            map(_lineage_cells, report.lineage),
        )
    if report.changes:
        print_data("\nWhat it changes:")
        for change in report.changes[:MOST_CHANGES]:
            print_data(f"  {output.clean(change)}")
        if (more := len(report.changes) - MOST_CHANGES) > 0:
            echo(f"… and {counted(more, 'more change')}; --json prints all")
    if report.held_out is not None:
        _print_held_out(report.held_out, one)
    elif one.status != "running":
        echo(f"not finished; continue: rubricsvc evolve start --resume {one.id}")


def _lineage_cells(one: CandidateSummary) -> list[Any]:
    parents = ", ".join(map(str, one.parents))
    return [one.number, one.generation, one.island, one.operator, parents, one.criteria, one.score]


def _print_held_out(found: HeldOutResult, one: EvolutionSummary) -> None:
    print_data(f"\nOn {counted(found.prompts, 'held-out prompt')}:")
    rows = [
        [each.objective, each.units, f"{each.start:z.4f}", f"{each.best:z.4f}", *estimate_cells(each.difference, 4)]
        for each in found.objectives
    ]
    print_table(("objective", "units", "start", "best", "best - start", "95%"), rows)
    for name, test in (("McNemar", found.mcnemar), ("by prompt", found.by_prompt)):
        print_data(f"{name}: {test.better} better, {test.worse} worse, p = {test.p:.3g}")
    if one.best == 0:
        echo("no candidate is better than the start on the search part")
    elif found.gain:
        echo(f"a gain: store it as a draft with `rubricsvc evolve best {one.id}`")
    else:
        echo("no gain is shown: the interval of the difference is not above 0")
