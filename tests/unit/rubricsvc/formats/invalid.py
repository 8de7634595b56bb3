"""The errors of an invalid file, and files of records, for assertions."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from rubricsvc.formats import InvalidFileError, Record, load
from rubricsvc.formats.writing import container_of, rows, write_text


def errors_of(path: Path, format: str | None = None) -> list[tuple[str, int | None, str, str]]:
    """Return (file name, line, path, code) of each error in a file."""
    with pytest.raises(InvalidFileError) as caught:
        load(path, format)
    return [(Path(error.file).name, error.line, error.path, error.code) for error in caught.value.errors]


def dump(records: Iterable[Record], path: Path, format: str = "native") -> None:
    """Write records to a file, as `rubrics export` does."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        write_text(rows(records, format), stream, container_of(format, path))
