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
from rubricsvc.cli.output import WITH_FAILURES, Json, echo, estimate_cells, print_data, print_json, print_table
from rubricsvc.cli.run_evaluation import has_diverged
from rubricsvc.cli.run_report import read_report
from rubricsvc.cli.run_training import RunOptions, exit_stopped, is_done, train_run
from rubricsvc.core.sweep import SweepFailure, SweepTable
from rubricsvc.errors import InvalidError, RubricsvcError, needs_extra

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

    Runs that are finished, or that stopped at a divergence, are not repeated; run the command again to continue, also
    after a crash. One that fails is listed, and the others go on; the exit code is 1.
    """
    from trainer.checkpoint import locked
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
    loaded.out.mkdir(parents=True, exist_ok=True)
    with locked(loaded.out):
        counts, failures = _train(config, loaded, cells, RunOptions(allow_drafts=allow_drafts, force=force))

    from rubricsvc.services.sweeping import compare_variants

    failed = {one.folder for one in failures}
    reports = {
        variant: {cell.seed: read_report(str(cell.folder)) for cell in runs if str(cell.folder) not in failed}
        for variant, runs in variants_of(cells).items()
    }
    table = compare_variants(reports).model_copy(update={"failures": tuple(failures)})
    _show(table, counts, as_json)
    if out is not None:
        from rubricsvc.web.sweep import render_sweep

        with output.open_output(out) as stream:
            stream.write(render_sweep(table, reports))
    if failures:
        raise typer.Exit(WITH_FAILURES)


def _train(
    config: Path, sweep: SweepConfig, cells: list[Cell], options: RunOptions
) -> tuple[dict[str, int], list[SweepFailure]]:
    """Train the runs that are not finished; return the counts of all, and the runs that failed."""
    kept = [cell for cell in cells if is_done(cell.config, options.allow_drafts)]  # all before any is trained
    journal = sweep.out / JOURNAL
    failures: list[SweepFailure] = []
    for number, cell in enumerate(cells, 1):
        if cell in kept:
            continue
        resume = (cell.folder / "config.json").is_file()
        echo(f"\nrun {number} of {len(cells)}: {cell.variant}, seed {cell.seed}{', resumed' if resume else ''}")
        _note(journal, cell, _STARTED)
        changed = RunOptions(resume, options.allow_drafts, options.force, cell.changes)
        try:
            stopped = train_run(sweep.base, changed).stopped
        except Exception as error:  # noqa: BLE001 - the others go on, whatever it is
            failures.append(_failure(cell, error))
            echo(f"error: {failures[-1].error}")
            continue
        if stopped and not has_diverged(cell.config):
            exit_stopped(f"runs sweep {config}")
        _note(journal, cell, _FINISHED)
    lines = _lines(journal)
    finished = Counter((line["folder"], line.get("steps")) for line in lines if line["event"] == _FINISHED)
    repeated = sum(count > 1 for count in finished.values())
    trained = len(cells) - len(kept) - len(failures)
    counts = {"cells": len(cells), "kept": len(kept), "trained": trained, "failed": len(failures)}
    return counts | {"repeated_cells": repeated}, failures


def _failure(cell: Cell, error: Exception) -> SweepFailure:
    """Return what a run failed with."""
    if isinstance(error, typer.Exit):
        message, hint = "its preflight refuses it", "start it nevertheless with --force"
    else:
        own = isinstance(error, RubricsvcError)
        message, hint = str(error) if own else f"{type(error).__name__}: {error}", getattr(error, "hint", "")
    return SweepFailure(variant=cell.variant, seed=cell.seed, folder=str(cell.folder), error=message, hint=hint)


def _note(journal: Path, cell: Cell, event: str) -> None:
    """Add an event of a run to the journal; it is on disk when this returns."""
    before = journal.read_text(encoding="utf-8") if journal.is_file() else ""
    with journal.open("a", encoding="utf-8") as file:
        file.write("" if before.endswith("\n") or not before else "\n")  # after a crash within a line
        file.write(json.dumps({"folder": cell.folder.name, "event": event, "steps": cell.config.steps}) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _lines(journal: Path) -> list[dict[str, Any]]:
    """Return the events; a line that a crash cut off is left out."""
    lines = journal.read_text(encoding="utf-8").splitlines(keepends=True) if journal.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("}\n")]


def _show(table: SweepTable, counts: dict[str, int], as_json: bool) -> None:
    if as_json:
        rows = [row.model_dump(mode="json") for row in table.rows]
        failures = [one.model_dump(mode="json") for one in table.failures]
        print_json({**counts, "best": table.best, "rows": rows, "failures": failures})
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
    if table.failures:
        print_data("")
        print_table(
            ("failed variant", "seed", "error", "hint"),
            [(one.variant, one.seed, one.error, one.hint) for one in table.failures],
        )
    best = f"best: {table.best}" if table.best else "no variant is higher than every other by the gold score"
    echo(f"{best}; {', '.join(f'{name}: {count}' for name, count in counts.items())}")
