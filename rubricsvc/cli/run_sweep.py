"""`rubricsvc runs sweep`: the runs of a sweep, and their table."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc import telemetry
from rubricsvc.cli import output
from rubricsvc.cli.output import Json, echo, estimate_cells, print_json, print_table
from rubricsvc.cli.run_report import read_report
from rubricsvc.cli.run_training import RunOptions, exit_stopped, is_finished, train_run
from rubricsvc.core.sweep import SweepTable
from rubricsvc.errors import InvalidError, needs_extra

if TYPE_CHECKING:
    from trainer.sweep import Cell, SweepConfig

JOURNAL = "cells.jsonl"
_STARTED, _FINISHED = "started", "finished"


def sweep(
    config: Annotated[Path, typer.Argument(metavar="SWEEP.toml", help="Sweep (docs/training.md).")],
    *,
    out: Annotated[
        Path | None, typer.Option(help="Page to write as well: table and curves.", show_default="none")
    ] = None,
    allow_drafts: Annotated[bool, typer.Option("--allow-drafts", help="Use rubrics that are not approved.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Start although the preflight refuses; recorded.")] = False,
    as_json: Json = False,
) -> None:
    """Train the runs of a sweep one after the other, and compare its variants on the held-out prompts.

    Runs that are finished are not repeated; run the command again to continue, also after a crash.
    """
    from trainer.sweep import cells_of, load_sweep, variants_of

    if out is not None:
        with needs_extra("charts"):
            import altair  # noqa: F401
            import vl_convert  # noqa: F401
    telemetry.configure("WARNING", human=True)
    loaded = load_sweep(config)
    cells = cells_of(loaded)
    if unevaluated := [cell.variant for cell in cells if cell.config.eval is None]:
        hint = "name held-out prompts in the base: training rewards of different settings are not compared"
        raise InvalidError(f"{unevaluated[0]} has no table [eval]", hint=hint, path="eval")
    counts = _train(config, loaded, cells, RunOptions(allow_drafts=allow_drafts, force=force))

    from rubricsvc.services.sweeping import compare_variants

    reports = {
        variant: {cell.seed: read_report(str(cell.folder)) for cell in runs}
        for variant, runs in variants_of(cells).items()
    }
    table = compare_variants(reports)
    _show(table, counts, as_json)
    if out is not None:
        from rubricsvc.web.sweep import render_sweep

        with output.open_output(out) as stream:
            stream.write(render_sweep(table, reports))


def _train(config: Path, sweep: SweepConfig, cells: list[Cell], options: RunOptions) -> dict[str, int]:
    """Train the runs that are not finished; return the counts of all."""
    sweep.out.mkdir(parents=True, exist_ok=True)
    journal = sweep.out / JOURNAL
    kept = 0
    for number, cell in enumerate(cells, 1):
        resume = (cell.folder / "config.json").is_file()
        if resume and is_finished(cell.config, resume=True):
            kept += 1
            continue
        echo(f"\nrun {number} of {len(cells)}: {cell.variant}, seed {cell.seed}{', resumed' if resume else ''}")
        _note(journal, cell, _STARTED)
        changed = RunOptions(resume, options.allow_drafts, options.force, cell.changes)
        if train_run(sweep.base, changed).stopped:
            exit_stopped(f"runs sweep {config}")
        _note(journal, cell, _FINISHED)
    finished = Counter(line["folder"] for line in _lines(journal) if line["event"] == _FINISHED)
    repeated = sum(count > 1 for count in finished.values())
    return {"cells": len(cells), "kept": kept, "trained": len(cells) - kept, "repeated_cells": repeated}


def _note(journal: Path, cell: Cell, event: str) -> None:
    """Add an event of a run to the journal; it is on disk when this returns."""
    before = journal.read_text(encoding="utf-8") if journal.is_file() else ""
    with journal.open("a", encoding="utf-8") as file:
        file.write("" if before.endswith("\n") or not before else "\n")  # after a crash within a line
        file.write(json.dumps({"folder": cell.folder.name, "event": event}) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _lines(journal: Path) -> list[dict[str, Any]]:
    """Return the events; a line that a crash cut off is left out."""
    lines = journal.read_text(encoding="utf-8").splitlines(keepends=True) if journal.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("}\n")]


def _show(table: SweepTable, counts: dict[str, int], as_json: bool) -> None:
    if as_json:
        rows = [row.model_dump(mode="json") for row in table.rows]
        print_json({**counts, "best": table.best, "rows": rows})
        return
    columns = ("variant", "score", "runs", "prompts", "mean", "difference to the first", "result")
    print_table(
        columns,
        [
            (
                row.variant,
                row.score + " (gold)" * row.gold,
                row.seeds,
                row.prompts,
                " ".join(filter(None, estimate_cells(row.mean))),
                " ".join(filter(None, estimate_cells(row.difference))),
                (row.result or "").replace("_", " ") + f": {row.reason}" * bool(row.reason),
            )
            for row in table.rows
        ],
    )
    best = f"best: {table.best}" if table.best else "no variant is higher than every other by the gold score"
    echo(f"{best}; {', '.join(f'{name}: {count}' for name, count in counts.items())}")
