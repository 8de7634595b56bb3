"""Several runs of one configuration, compared when all are trained: a sweep, and a run beside its controls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from rubricsvc.core.fingerprint import digest
from rubricsvc.errors import InvalidError, RubricsvcError
from rubricsvc.schemas.runs import RunComparison, SweepFailure, SweepTable
from rubricsvc.services.run_comparing import compare, compare_variants
from trainer.checkpoint import locked
from trainer.config import ConfigSection, ControlName, RunConfig, load_config, read_toml
from trainer.run import Logged, Progress, Run

MAX_SLUG_CHARS = 60


class SweepConfig(ConfigSection):
    """A sweep over the run that the file ``base`` describes.

    ``vary`` has the values of fields, by dotted path: ``"optim.lr" = [1e-5, 3e-5]``. A ``grid`` has all combinations,
    ``one_at_a_time`` the base and one changed field in each other run. Folders of runs are in ``out``.
    """

    base: Path
    vary: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(min_length=1)
    mode: Literal["grid", "one_at_a_time"] = "grid"
    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)
    out: Path

    @field_validator("vary", mode="before")
    @classmethod
    def _by_path(cls, vary: Any) -> Any:
        return dict(_leaves(vary)) if isinstance(vary, dict) else vary

    @field_validator("vary")
    @classmethod
    def _not_of_the_sweep(cls, vary: dict[str, list[Any]]) -> dict[str, list[Any]]:
        for name, own in (("seed", "seeds"), ("out", "out")):
            if name in vary:
                raise ValueError(f"{name} cannot be varied; set `{own}` of the sweep")
        return vary


def _leaves(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a sweep: its variant, its seed and its folder. ``changes`` as in `load_config`."""

    variant: str
    seed: int
    folder: Path
    changes: Mapping[str, Any]
    config: RunConfig


def load_sweep(path: Path) -> SweepConfig:
    """Return the sweep that a TOML file describes; its paths are relative to the file, ``out`` is ``sweeps/<name>``."""
    sweep = read_toml(path, SweepConfig, {"out": str(Path("sweeps", path.stem))})
    return sweep.model_copy(update={"base": path.parent / sweep.base, "out": path.parent / sweep.out})


def cells_of(sweep: SweepConfig) -> list[Cell]:
    """Return the runs of a sweep, those of a variant together; all of their configurations are checked."""
    cells = [_cell(sweep, variant, seed) for variant in _variants(sweep) for seed in sweep.seeds]
    by_content: dict[str, Cell] = {}
    for cell in cells:
        known = by_content.setdefault(digest(cell.config.model_dump(mode="json", exclude={"out"})), cell)
        if known is not cell:
            message = f"two runs of the sweep are the same: {_name(known)}, and {_name(cell)}"
            raise InvalidError(message, hint="remove a repeated value or seed", path="vary")
    return cells


def _variants(sweep: SweepConfig) -> list[dict[str, Any]]:
    if sweep.mode == "grid":
        return [dict(zip(sweep.vary, values, strict=True)) for values in product(*sweep.vary.values())]
    return [{}, *({name: value} for name, values in sweep.vary.items() for value in values)]


def _cell(sweep: SweepConfig, variant: Mapping[str, Any], seed: int) -> Cell:
    title = ", ".join(f"{name} = {value}" for name, value in variant.items()) or "base"
    slug = re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-.")[:MAX_SLUG_CHARS]
    folder = sweep.out / f"{slug}-{digest(dict(variant))[:6]}-seed-{seed}"
    changes = {**variant, "seed": seed, "out": str(folder.absolute())}
    return Cell(title, seed, folder, changes, load_config(sweep.base, changes=changes))


def _name(cell: Cell) -> str:
    return f"{cell.variant} with seed {cell.seed}"


def variants_of(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Return the runs of each variant, in the order of the file."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.variant, []).append(cell)
    return found


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
) -> tuple[SweepTable, Mapping[str, int]]:
    """Train the runs of a sweep one after the other; return the comparison of its variants, and counts.

    Runs that are finished, or that stopped at a divergence, are not repeated. One that fails is in the table, and the
    others go on.
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
    return table, counts


def _failure(cell: Cell, error: Exception) -> SweepFailure:
    message = str(error) if isinstance(error, RubricsvcError) else f"{type(error).__name__}: {error}"
    hint = getattr(error, "hint", "")
    return SweepFailure(variant=cell.variant, seed=cell.seed, folder=str(cell.folder), error=message, hint=hint)
