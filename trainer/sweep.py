"""A sweep: several runs of one configuration, compared when all are trained. Controls of a run are variants of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from rubricsvc.core.fingerprint import digest
from rubricsvc.errors import InvalidError, RubricsvcError
from rubricsvc.schemas.runs import RunReport
from trainer.checkpoint import locked
from trainer.comparing import SweepFailure, SweepTable, compare_variants
from trainer.config import ConfigSection, PathBeside, RunConfig, load_config, read_toml
from trainer.run import Progress, Run

MAX_SLUG_CHARS = 60


class SweepConfig(ConfigSection):
    """A sweep over the run that the file ``base`` describes.

    ``vary`` has the values of fields, by dotted path: ``"optim.lr" = [1e-5, 3e-5]``. A ``grid`` has all combinations,
    ``one_at_a_time`` the base and one changed field in each other run. Folders of runs are in ``out``.
    """

    base: PathBeside
    vary: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(min_length=1)
    mode: Literal["grid", "one_at_a_time"] = "grid"
    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)
    out: PathBeside

    @field_validator("vary", mode="before")
    @classmethod
    def _by_path(cls, vary: Any) -> Any:
        """Name the fields of inner tables by their paths; seed and folder belong to the sweep."""
        if not isinstance(vary, dict):
            return vary
        leaves: dict[str, Any] = {}
        tables: list[tuple[str, dict[str, Any]]] = [("", vary)]
        for path, table in tables:
            for name, value in table.items():
                if isinstance(value, dict):
                    tables.append((f"{path}{name}.", value))
                else:
                    leaves[f"{path}{name}"] = value
        for name, own in (("seed", "seeds"), ("out", "out")):
            if name in leaves:
                raise ValueError(f"{name} cannot be varied; set `{own}` of the sweep")
        return leaves


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a sweep: its variant, its seed and its folder. ``changes`` as in `load_config`."""

    variant: str
    seed: int
    folder: Path
    changes: Mapping[str, Any]
    config: RunConfig


def cells_of(sweep: SweepConfig) -> list[Cell]:
    """Return the runs of a sweep, those of a variant together; all of their configurations are checked."""
    variants: list[dict[str, Any]] = [{}]
    variants += [{name: value} for name, values in sweep.vary.items() for value in values]
    if sweep.mode == "grid":
        variants = [dict(zip(sweep.vary, values, strict=True)) for values in product(*sweep.vary.values())]
    cells: dict[str, Cell] = {}
    for variant, seed in product(variants, sweep.seeds):
        title = ", ".join(f"{name} = {value}" for name, value in variant.items()) or "base"
        slug = re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-.")[:MAX_SLUG_CHARS]
        folder = sweep.out / f"{slug}-{digest(dict(variant))[:6]}-seed-{seed}"
        changes = {**variant, "seed": seed, "out": str(folder.absolute())}
        cell = Cell(title, seed, folder, changes, load_config(sweep.base, changes=changes))
        known = cells.setdefault(digest(cell.config.model_dump(mode="json", exclude={"out"})), cell)
        if known is not cell:
            same = ", and ".join(f"{one.variant} with seed {one.seed}" for one in (known, cell))
            raise InvalidError(f"two runs of the sweep are the same: {same}", hint="remove one", path="vary")
    return list(cells.values())


class StoppedError(Exception):
    """A person stopped one of several runs."""


def train_sweep(
    config: Path, *, allow_drafts: bool = False, force: bool = False, progress: Progress | None = None
) -> tuple[SweepTable, Mapping[str, int]]:
    """Train the runs of a sweep one after the other; return the comparison of its variants, and counts.

    Runs that are finished, or that stopped at a divergence, are not repeated. After one that fails the others go on.
    """
    progress = progress or Progress()
    sweep = read_toml(config, SweepConfig, {"out": str(Path("sweeps", config.stem))})
    cells = cells_of(sweep)
    if without := [cell.variant for cell in cells if cell.config.eval is None]:
        hint = "name held-out prompts in the base: training rewards of different settings are not compared"
        raise InvalidError(f"{without[0]} has no table [eval]", hint=hint, path="eval")
    sweep.out.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"allow_drafts": allow_drafts, "progress": progress}
    failures: list[SweepFailure] = []
    with locked(sweep.out):
        runs = {cell.folder: Run(sweep.base, changes=cell.changes, **options) for cell in cells}
        kept = {folder for folder, run in runs.items() if run.is_kept(or_diverged=True)}  # all before any is trained
        for number, cell in enumerate(cells, 1):
            if cell.folder in kept:
                continue
            run, resume = runs[cell.folder], (cell.folder / "config.json").is_file()
            title = f"{cell.variant}, seed {cell.seed}{', resumed' * resume}"
            progress.message(f"\nrun {number} of {len(cells)}: {title}")
            try:
                stopped = run.train(resume=resume, force=force).stopped and not run.has_diverged()
            except Exception as error:  # noqa: BLE001 - the others go on, whatever it is
                message = str(error) if isinstance(error, RubricsvcError) else f"{type(error).__name__}: {error}"
                hint, folder = getattr(error, "hint", ""), str(cell.folder)
                failed_run = SweepFailure(variant=cell.variant, seed=cell.seed, folder=folder, error=message, hint=hint)
                failures.append(failed_run)
                progress.message(f"error: {message}")
                continue
            if stopped:
                raise StoppedError
    failed = {one.folder for one in failures}
    reports: dict[str, dict[int, RunReport]] = {cell.variant: {} for cell in cells}
    for cell in cells:
        if str(cell.folder) not in failed:
            reports[cell.variant][cell.seed] = runs[cell.folder].report()
    trained = len(cells) - len(kept) - len(failures)
    counts = {"cells": len(cells), "kept": len(kept), "trained": trained, "failed": len(failures)}
    return compare_variants(reports).model_copy(update={"failures": tuple(failures)}), counts
