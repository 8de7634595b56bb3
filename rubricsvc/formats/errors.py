"""What is wrong with a file: where, what was expected, what was found. All faults are gathered before any is raised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rubricsvc.errors import FormatError, cut

Steps = tuple[str | int, ...]
"""The way from a record to one of its fields: ``("criteria", 2, "weight")``."""

SHOWN = 20
KEPT = 1000


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands. ``lines`` (YAML) knows the lines of its fields by their steps from the document's root."""

    file: str
    line: int | None = None
    lines: Mapping[Steps, int] = field(default_factory=dict)
    root: Steps = ()

    def has(self, steps: Steps) -> bool:
        """Whether it is known that the record has such a field."""
        return self.root + steps in self.lines

    def line_of(self, steps: Steps = ()) -> int | None:
        """The line of the field, or of the nearest thing around it that has one."""
        full = self.root + steps
        while full not in self.lines and len(full) > len(self.root):
            full = full[:-1]
        return self.lines.get(full, self.line)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, in plain words."""

    file: str
    line: int | None
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


_MEND = "mend them, or leave the bad records out with --skip-invalid (skip_invalid=True)"


class BadFileError(FormatError):
    """The file holds these ``faults``; nothing was taken from it."""

    def __init__(self, file: str, faults: list[Fault], count: int, *, hint: str = _MEND) -> None:
        lines = [str(fault) for fault in faults[:SHOWN]]
        if count > len(lines):
            lines.append(f"… and {count - len(lines)} more")
        head = f"{count} faults in {file}:\n  " if count > 1 else ""
        first = faults[0]
        path = f"{first.file}:{first.line}" if first.line else first.file
        super().__init__(head + "\n  ".join(lines), hint=hint, path=path)
        self.faults = faults


class Faults:
    """A collection of faults. The first ``KEPT`` are kept, all are counted."""

    def __init__(self) -> None:
        self.kept: list[Fault] = []
        self.count = 0

    def add(self, place: Place, message: str, steps: Steps = ()) -> None:
        self.count += 1
        if len(self.kept) < KEPT:
            where = f"{dotted(steps)}: " if steps else ""
            self.kept.append(Fault(place.file, place.line_of(steps), cut(where, 200) + cut(message, 600)))

    def told(self, file: str) -> list[Fault]:
        """The faults that are kept and, where there were more, how many."""
        more = self.count - len(self.kept)
        return self.kept + ([Fault(file, None, f"and {more} more faults")] if more else [])

    def raise_if_any(self, file: str) -> None:
        if self.count:
            raise BadFileError(file, self.kept, self.count)


class Renamed(Faults):
    """Passes faults on, with the file's own names for the fields."""

    def __init__(self, faults: Faults, names: dict[str, str]) -> None:
        self._faults, self._names = faults, names

    def add(self, place: Place, message: str, steps: Steps = ()) -> None:
        self._faults.add(place, message, tuple(self._names.get(str(s), s) for s in steps[:1]) + steps[1:])


def refuse(place: Place, message: str, hint: str = "") -> FormatError:
    """The error for a file of which nothing can be read."""
    fault = Fault(place.file, place.line, message)
    return FormatError(str(fault), hint=hint, path=f"{place.file}:{place.line}" if place.line else place.file)


def dotted(steps: Steps) -> str:
    """``criteria[2].weight``."""
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
