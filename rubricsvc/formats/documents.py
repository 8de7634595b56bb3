"""Files of judges (YAML or JSON) and passports (JSON), with the fields of the models in `rubricsvc.core`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import Passport
from rubricsvc.errors import RubricsvcError
from rubricsvc.formats import yaml_records
from rubricsvc.formats.errors import file_error
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.record import Entry


def load_judges(path: Path, find: Callable[[str], Judge]) -> list[Judge]:
    """Read the judges of a file, or of stdin for ``-``.

    The file has one judge, a list of them, or several YAML documents. A panel or cascade may name members that are
    earlier in the file, or stored: ``find`` returns a stored judge by name.
    """
    file = InputFile("judge.yaml", stream=sys.stdin.buffer, name="<stdin>") if str(path) == "-" else InputFile(path)
    judges: dict[str, Judge] = {}

    def read(entry: Entry) -> Iterator[Judge]:
        data = entry.data
        if isinstance(data, dict) and isinstance(data.get("members"), list):
            data = {**data, "members": list(data["members"])}
            for number, member in enumerate(data["members"]):
                if isinstance(member, str):
                    try:
                        judge = judges.get(member) or find(member)
                    except RubricsvcError as error:
                        entry.add("not_found", str(error), ("members", number))
                        return
                    data["members"][number] = judge.model_dump(mode="json", exclude_defaults=True)
        judge = entry.build(Judge, data)
        if judge.name in judges:
            entry.add("duplicate_key", f"the file has two judges named {judge.name!r}", ("name",))
        yield judge

    for judge in file.parse(read):
        judges[judge.name] = judge
    file.errors.raise_if_any("correct the file (docs/judges.md)")
    return list(judges.values())


def dump_judge(judge: Judge, stream: TextIO) -> None:
    """Write a judge so that `load_judges` reads an equal one, without the fields that have their defaults."""
    fields = judge.model_dump(mode="json", exclude_defaults=True)
    if not judge.members:
        fields = {"name": judge.name, "engine": judge.engine, "model": judge.model, "mode": judge.mode} | fields
    yaml_records.write(fields, stream)


def load_passport(path: Path) -> Passport:
    """Read the passport of a judge."""
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
