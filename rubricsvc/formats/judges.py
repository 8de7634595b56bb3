"""Judge files: YAML or JSON with the fields of `rubricsvc.core.judge.Judge` (docs/judges.md)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from rubricsvc.core.judge import Judge
from rubricsvc.errors import RubricsvcError
from rubricsvc.formats import yaml_records
from rubricsvc.formats.errors import FileErrors, Location
from rubricsvc.formats.fields import build
from rubricsvc.formats.input_file import InputFile

FindJudge = Callable[[str], Judge]


def load_judges(path: Path, find: FindJudge) -> list[Judge]:
    """Read the judges of a file, or of stdin for ``-``.

    Args:
        path: The file. It has one judge, a list of them, or several YAML documents.
        find: Returns a stored judge by name. A panel or cascade may name members that are stored, or earlier in the
            file.

    Raises:
        InvalidFileError: The file or one of its judges is invalid.
    """
    file = InputFile("judge.yaml", stream=sys.stdin.buffer, name="<stdin>") if str(path) == "-" else InputFile(path)
    judges: dict[str, Judge] = {}

    def parse(data: Any, location: Location, errors: FileErrors) -> Judge | None:
        if isinstance(data, dict) and isinstance(data.get("members"), list):
            members = list(data["members"])
            for number, member in enumerate(members):
                if isinstance(member, str):
                    try:
                        judge = judges.get(member) or find(member)
                    except RubricsvcError as error:
                        errors.add(location, "not_found", str(error), ("members", number))
                        return None
                    members[number] = judge.model_dump(mode="json", exclude_defaults=True)
            data = data | {"members": members}
        read = build(Judge, data, location, errors)
        if read is not None and read.name in judges:
            errors.add(location, "duplicate", f"the file has two judges named {read.name!r}", ("name",))
        return read

    for judge in file.parse(parse):
        judges[judge.name] = judge
    file.errors.raise_if_any()
    return list(judges.values())


def dump_judge(judge: Judge, stream: TextIO) -> None:
    """Write a judge so that `load_judges` reads an equal one, without the fields that have their defaults."""
    fields = judge.model_dump(mode="json", exclude_defaults=True)
    if not judge.members:
        fields = {"name": judge.name, "engine": judge.engine, "model": judge.model, "mode": judge.mode} | fields
    yaml_records.write(fields, stream)
