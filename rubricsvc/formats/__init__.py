"""Files into records. Each format is a mapping file; ``FORMATS`` names them.

A file is used whole or not at all: all errors in it are collected, with line, field, what was expected and what was
found, and raised as one ``InvalidFileError``. With ``skip_invalid`` the invalid records are left out instead.

To add a format, write a mapping file (`docs/formats.md`); ``load(path, mapping="mine.yaml")`` reads by it.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rubricsvc.core.rubric import Rubric
from rubricsvc.core.validation_messages import FieldPath, error_text
from rubricsvc.errors import InvalidError
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.mapping import FORMATS, Reader
from rubricsvc.formats.record import (
    FIELDS,
    InvalidFileError,
    Record,
    RubricCheck,
    file_error,
    kind_of,
    read,
    rubric_errors,
)
from rubricsvc.schemas.base import FileProblem

__all__ = ["FORMATS", "InputFile", "InvalidFileError", "Record", "Records", "RubricCheck", "detect", "load", "stream"]


class Records(list[Record]):
    """The records of a file, the errors of those that were ``skipped``, and ``notes`` on the others."""

    skipped: list[FileProblem]
    notes: list[FileProblem]


def load(
    path: str | Path, format: str | None = None, *, mapping: str | Path | None = None, skip_invalid: bool = False
) -> Records:
    """Return all records of a file.

    Args:
        path: the file.
        format: a name in ``FORMATS``; by default it is recognized by the file's ending and fields.
        mapping: a mapping file of yours, instead of a format.
        skip_invalid: leave invalid records out and list their errors in ``.skipped``, instead of rejecting the file.

    Raises:
        InvalidFileError: the file is invalid (``.errors`` lists what is wrong), missing, or of an unknown format.
        InvalidError: the format does not exist.
    """
    file = InputFile(path, mapping=mapping)
    records = Records(stream(file, format, skip_invalid=skip_invalid))
    records.skipped, records.notes = file.errors.errors, file.errors.notes
    return records


def stream(
    file: InputFile, format: str | None = None, *, skip_invalid: bool = False, check: RubricCheck | None = None
) -> Iterator[Record]:
    """Yield the records of a file one by one, as `load` does. Use them only once it has ended without an error.

    ``file.errors`` has the errors of the records that were skipped. ``check`` is called with each rubric that will be
    stored, and an InvalidError that it raises is an error of the record.
    """
    if file.mapping is not None and format is not None:
        raise InvalidError("a file has a format or a mapping", hint="leave out one of them", path="format")
    name = "" if file.mapping is not None else format or detect(file)
    if file.mapping is None and name not in FORMATS:
        raise InvalidError(f"unknown format {name!r}", hint=f"expected one of {', '.join(FORMATS)}", path="format")
    reader = Reader(file.mapping) if file.mapping is not None else FORMATS[name]
    errors, count, file.check = file.errors, 0, check
    for given in file.parse(read) if name == "native" else reader.read(file):
        try:
            record, removed = without_invisible(given)
        except ValidationError as invalid:
            message = f"is invalid without its invisible characters: {error_text(invalid)}"
            errors.add(given.location.error("invisible", message))
            continue
        for path, number in removed.items():
            message = f"removed {number} invisible character{'s' * (number != 1)}, which a reviewer would not see"
            errors.add(notes=[record.location.error("invisible", message, path)])
        before = errors.count
        if record.rubric is not None:
            errors.add(*rubric_errors(record.rubric, record.location, check))
        if errors.count == before:
            count += 1
            if skip_invalid or not errors.count:
                yield record
    if not skip_invalid:
        errors.raise_if_any(reader.mapping.hint)
    if not count:
        errors.raise_if_any("correct them: no record is valid")
        raise file_error(file.location, "no_records", "has no valid record")


def detect(file: InputFile) -> str:
    """Return the name of the file's format, recognized by its ending and the fields of its first record.

    It is an InvalidFileError, which names the formats, if none or several match.
    """
    first = file.first()
    if (kind := kind_of(first)) == "labels":
        hint = "these are labels: import them with `rubricsvc labels import`"
        raise file_error(file.location, "unknown_format", "has labels or verdicts, not rubrics", hint)
    fields = set(first) if isinstance(first, dict) else set()
    criteria = first.get("criteria") if isinstance(first, dict) else None
    given = [one for one in criteria if one] if isinstance(criteria, list) else []
    texts = [isinstance(one, str) or (isinstance(one, dict) and "text" in one) for one in given]
    named = isinstance(given[0], dict) and given[0].keys() & {"id", "name"} if given else False  # of another format
    if texts and all(texts) and fields <= {*FIELDS} and not named:
        return "native"  # without a look at the mappings
    ending = file.path.suffix.lower()
    is_csv = ending in (".csv", ".tsv", ".xlsx", ".xlsm")
    if is_csv and "criterion" in fields and not fields >= {"text", "label"}:
        return "criteria_csv"
    matching = [name for name, one in FORMATS.items() if one.identifies(first)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        message = f"its records may be of several formats: {', '.join(matching)}"
        raise file_error(file.location, "ambiguous_format", message, f"choose one: --format {matching[0]}")
    if (
        first is None
        or file.errors.count  # after a line that is not JSON, its error is what matters
        or ending in (".yaml", ".yml")
        or get_close_matches("criteria", map(str, fields), cutoff=0.85)  # a misspelt field, and all other errors
        or ("prompt" in fields and ("rubric" in fields or fields.issubset(FIELDS)))  # or one beside a prompt
    ):
        return "native"
    message = f"its first record has the fields {', '.join(sorted(fields)[:6])}" if fields else "has no fields"
    hint = f"name it with --format (format=): {', '.join(('completions', 'labels', *FORMATS))}"
    if kind == "completions":
        hint = "these are completions without rubrics: import them with `rubricsvc completions import`"
    elif is_csv:
        columns = "criterion, weight (of a rubric), or prompt, completion, policy (of completions"
        hint = f"name the columns {columns}, for `rubricsvc completions import`)"
    raise file_error(file.location, "unknown_format", f"unknown format: {message}", hint)


HIDDEN = re.compile(
    "[\u115f\u1160\u180b-\u180f\u200b\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\U000e0000-\U000e0fff]"
)
"""Zero-width spaces, blank letters, overrides of direction, invisible operators, tags, variation selectors.

Fewer than `rubricsvc.core.untrusted.INVISIBLE`: an import is not the place to judge joiners and soft hyphens.
"""
_KEPT = frozenset({"key", "expression", "check", "examples"})
"""Fields that are left as they are: names that others refer to, arguments of checks, and completions."""


def without_invisible(record: Record) -> tuple[Record, dict[FieldPath, int]]:
    """Return the record with a rubric that is all visible, and the number of characters removed by field."""
    rubric = record.rubric
    if rubric is None or not HIDDEN.search(rubric.model_dump_json()):
        return record, {}
    removed: Counter[FieldPath] = Counter()

    def cleaned(data: Any, path: FieldPath) -> Any:
        if isinstance(data, str):
            if count := len(HIDDEN.findall(data)):
                removed[path] = count
                return HIDDEN.sub("", data) or "-"
        elif isinstance(data, list):
            return [cleaned(item, (*path, place)) for place, item in enumerate(data)]
        elif isinstance(data, dict):
            return {key: item if key in _KEPT else cleaned(item, (*path, key)) for key, item in data.items()}
        return data

    visible = cleaned(rubric.model_dump(mode="json", exclude_none=True), ())
    return (replace(record, rubric=Rubric.model_validate(visible)) if removed else record), removed
