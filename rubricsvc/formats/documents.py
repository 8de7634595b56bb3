"""Files that hold one noun: completions of one prompt, a trajectory, judges, a passport."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TextIO

from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import Passport
from rubricsvc.core.prompt import Completion
from rubricsvc.errors import InvalidError, NotFoundError, RubricsvcError
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.record import LABEL_FIELDS, CompletionLine, Entry, InvalidFileError, file_error, read_completion
from rubricsvc.formats.writing import write_yaml


def read_all(file: InputFile) -> list[CompletionLine]:
    """Return the completions of a file, which may name no prompt."""
    lines = [line for line, _ in file.parse(partial(read_completion, needs_prompt=False))]
    file.errors.raise_if_any()
    if not lines:
        raise file_error(file.location, "no_records", "has no completions")
    return lines


def with_criteria(file: InputFile, names_of: Callable[[str], Mapping[str, str]]) -> Iterator[Entry]:
    """Yield the records of a file of labels, in whose sheets a column that is named as a criterion is the criterion.

    ``names_of`` returns a rubric's keys by folded key and text. A column annotator named so is an InvalidFileError.
    """
    for entry in file.entries:
        names: Mapping[str, str] = {}
        if entry.is_csv and "rubric" in entry.data and "criterion" not in file.columns:
            with suppress(NotFoundError, InvalidError):  # errors of the label, too
                names = names_of(entry.data["rubric"])
        is_wide = names.keys() & {name.strip().casefold() for name in file.columns.values()}
        for field in {"value", "annotator"} & file.columns.keys() if is_wide else ():
            given = file.columns[field].strip()
            key = names.get(given.casefold())
            if key is not None and given == field == "annotator":
                message = f"column 'annotator' is the person, or the criterion {key!r} of {entry.data['rubric']!r}"
                hint = "name it rater if it is the person, or else by the text of the criterion"
                raise file_error(file.location, "ambiguous_column", message, hint)
            if field in entry.data and (key is not None or (field == "value" and given != field)):
                entry.data[field.upper() if key == field else key or given] = entry.data.pop(field)  # in any case
        columns: dict[str, str] = {}  # by criterion
        for field in entry.data if is_wide else ():
            key = names.get(field.strip().casefold())
            if key and field not in LABEL_FIELDS and (first := columns.setdefault(key, field)) != field:
                message = f"columns {first!r} and {field!r} are both of the criterion {key!r}: leave one of them out"
                entry.add("ambiguous_column", message, (field,))
        yield entry


def read_trajectory(file: InputFile) -> Completion:
    """Return the trajectory in a file: a list of messages, a mapping with ``messages``, or a message a line."""
    hint = 'expected JSON: a list of messages (role, content, tool_calls), {"messages": […]}, or one message a line'
    data = list(file.parse(lambda entry: [entry.data]))
    file.errors.raise_if_any()
    alone = data[0] if len(data) == 1 else None
    messages = alone["messages"] if isinstance(alone, dict) and "messages" in alone else data
    try:
        return Entry(data, file.location).build(Completion, {"messages": messages})
    except InvalidFileError as error:
        raise InvalidFileError(list(error.errors), hint=hint) from None


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
    write_yaml(fields, stream)


def load_passport(path: Path) -> Passport:
    """Read the passport of a judge."""
    file = InputFile(path)
    passports = list(file.parse(lambda entry: [entry.build(Passport, entry.data)]))
    file.errors.raise_if_any("give the passport.json that was written with the judge's weights")
    if len(passports) != 1:
        raise file_error(file.location, "value_error", f"expected one passport, found {len(passports)}")
    return passports[0]
