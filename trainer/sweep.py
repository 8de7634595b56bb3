"""A sweep: the runs of one configuration with other values of some fields, each with several seeds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from rubricsvc.core.fingerprint import digest
from rubricsvc.errors import InvalidError
from trainer.config import RunConfig, load_config
from trainer.config_file import ConfigSection, read_toml

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
    """Return the sweep that a TOML file describes; its paths are relative to the file, ``out`` is ``sweeps/<name>``.

    Raises:
        NotFoundError: There is no such file.
        InvalidError: Fields are unknown, missing or out of range.
    """
    sweep = read_toml(path, SweepConfig, {"out": str(Path("sweeps", path.stem))})
    return sweep.model_copy(update={"base": path.parent / sweep.base, "out": path.parent / sweep.out})


def cells_of(sweep: SweepConfig) -> list[Cell]:
    """Return the runs of a sweep, those of a variant together; all of their configurations are checked.

    Raises:
        InvalidError: A configuration is invalid, or two are the same.
    """
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
