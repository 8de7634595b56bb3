"""Several runs of one configuration, compared when all are trained: a run beside its controls, and a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rubricsvc.errors import InvalidError, RubricsvcError
from rubricsvc.schemas.runs import RunComparison, RunReport, SweepFailure, SweepTable
from rubricsvc.services.run_comparing import compare, compare_variants
from trainer.checkpoint import locked
from trainer.config import ControlName, RunConfig, load_config
from trainer.run.progress import Logged, Progress
from trainer.run.run import Run
from trainer.sweep import Cell, cells_of, load_sweep, variants_of

CONTROLS: tuple[ControlName, ...] = ("random", "shuffled", "frozen")


class StoppedError(Exception):
    """A person stopped one of several runs."""


def control_changes(config: Path, control: str) -> dict[str, Any]:
    """Return the changed fields of a control of the run of a file: its reward, and a folder beside the run's."""
    loaded = load_config(config)
    if loaded.control is not None:
        hint = "remove the table [control] from the file"
        raise InvalidError(f"{config} is a control itself: {loaded.control.reward}", hint=hint, path="control")
    if control not in CONTROLS:
        raise InvalidError(f"unknown control {control!r}", hint=f"choose one of {', '.join(CONTROLS)}", path="control")
    beside = loaded.out.with_name(f"{loaded.out.name}-{control}")
    relative = beside.relative_to(config.parent) if beside.is_relative_to(config.parent) else beside
    return {"control.reward": control, "out": str(relative)}


def require_evaluation(config: RunConfig, name: str, hint: str = "name held-out prompts (docs/training.md)") -> None:
    """Raise an InvalidError if a run is not evaluated: the training rewards of different runs are not compared."""
    if config.eval is None:
        raise InvalidError(f"{name} has no table [eval]", hint=hint, path="eval")


def train_controls(
    config: Path,
    controls: Sequence[str] = CONTROLS,
    *,
    allow_drafts: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Iterator[tuple[str, RunComparison]]:
    """Train a run and its controls, and yield the comparison of the run with each.

    Runs that are finished, or that stopped at a divergence, are not repeated.

    Raises:
        StoppedError: A person stopped one of the runs.
        ConflictError: A finished run has other settings, prompts or rubrics; none is trained then.
    """
    progress = progress or Logged()
    require_evaluation(load_config(config), str(config))
    changes: dict[str, dict[str, Any]] = {"": {}}
    changes |= {name: control_changes(config, name) for name in dict.fromkeys(controls)}
    options: dict[str, Any] = {"allow_drafts": allow_drafts, "progress": progress}
    runs = {name: Run(config, changes=changed, **options) for name, changed in changes.items()}
    for run in runs.values():
        run.is_done()
    for name, run in runs.items():
        progress.message(f"\n{f'control {name}' if name else 'the run'}: {run.out}")
        _train(run, force)
    report = runs.pop("").report()
    for name, run in runs.items():
        yield name, compare(run.report(), report)


def _train(run: Run, force: bool) -> None:
    if run.has_diverged():
        run.progress.message("it stopped where its reward diverges from gold")
    elif run.train(resume=(run.out / "config.json").is_file(), force=force).stopped and not run.has_diverged():
        raise StoppedError


def train_sweep(
    config: Path, *, allow_drafts: bool = False, force: bool = False, progress: Progress | None = None
) -> tuple[SweepTable, Mapping[str, Mapping[int, RunReport]], Mapping[str, int]]:
    """Train the runs of a sweep one after the other; return the comparison of its variants, the reports, and counts.

    Runs that are finished, or that stopped at a divergence, are not repeated. One that fails is in the table, and the
    others go on.

    Raises:
        StoppedError: A person stopped one of the runs.
        ConflictError: A finished run has other settings, prompts or rubrics; none is trained then.
    """
    progress = progress or Logged()
    sweep = load_sweep(config)
    cells = cells_of(sweep)
    for cell in cells:
        hint = "name held-out prompts in the base: training rewards of different settings are not compared"
        require_evaluation(cell.config, cell.variant, hint)
    sweep.out.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"allow_drafts": allow_drafts, "progress": progress}
    failures: list[SweepFailure] = []
    with locked(sweep.out):
        runs = {cell.folder: Run(sweep.base, changes=cell.changes, **options) for cell in cells}
        kept = {folder for folder, run in runs.items() if run.is_done()}  # all before any is trained
        for number, cell in enumerate(cells, 1):
            if cell.folder in kept:
                continue
            resumed = ", resumed" if (cell.folder / "config.json").is_file() else ""
            progress.message(f"\nrun {number} of {len(cells)}: {cell.variant}, seed {cell.seed}{resumed}")
            try:
                _train(runs[cell.folder], force)
            except StoppedError:
                raise
            except Exception as error:  # noqa: BLE001 - the others go on, whatever it is
                failures.append(_failure(cell, error))
                progress.message(f"error: {failures[-1].error}")
    failed = {one.folder for one in failures}
    reports = {
        variant: {cell.seed: runs[cell.folder].report() for cell in of if str(cell.folder) not in failed}
        for variant, of in variants_of(cells).items()
    }
    trained = len(cells) - len(kept) - len(failures)
    counts = {"cells": len(cells), "kept": len(kept), "trained": trained, "failed": len(failures)}
    table = compare_variants(reports).model_copy(update={"failures": tuple(failures)})
    return table, reports, counts


def _failure(cell: Cell, error: Exception) -> SweepFailure:
    message = str(error) if isinstance(error, RubricsvcError) else f"{type(error).__name__}: {error}"
    hint = getattr(error, "hint", "")
    return SweepFailure(variant=cell.variant, seed=cell.seed, folder=str(cell.folder), error=message, hint=hint)
