"""The errors of an invalid file, for assertions."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubricsvc.formats import InvalidFileError, load


def errors_of(path: Path, format: str | None = None) -> list[tuple[str, int | None, str, str]]:
    """Return (file name, line, path, code) of each error in a file."""
    with pytest.raises(InvalidFileError) as caught:
        load(path, format)
    return [(Path(error.file).name, error.line, error.path, error.code) for error in caught.value.errors]
