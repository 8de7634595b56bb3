"""Passport files: JSON with the fields of `rubricsvc.core.passport.Passport` (docs/judges.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from rubricsvc.core.passport import Passport
from rubricsvc.formats.errors import file_error
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.record import Entry


def load_passport(path: Path) -> Passport:
    """Read the passport of a judge.

    Raises:
        InvalidFileError: the file or the passport is invalid.
    """
    file = InputFile(path)

    def read(entry: Entry) -> Iterator[Passport]:
        yield entry.build(Passport, entry.data)

    passports = list(file.parse(read))
    file.errors.raise_if_any("give the passport.json that was written with the judge's weights")
    if len(passports) != 1:
        raise file_error(file.location, "value_error", f"expected one passport, found {len(passports)}")
    return passports[0]


def dump_passport(passport: Passport, stream: TextIO) -> None:
    """Write a passport so that `load_passport` reads an equal one."""
    stream.write(passport.model_dump_json(exclude_none=True) + "\n")
