"""ResearchRubrics (arXiv 2511.07685): one task a CSV, a criterion a row; the prompt is in the first row.

The columns ``<model>_present`` are labels of that model's response, which is not in the file: each becomes a record
with labels and without a completion, unless the first row has the response in ``<model>_response``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Level, Ordinal, Rubric
from rubricsvc.core.validation_messages import FieldPath
from rubricsvc.formats.csv_cells import restored_row
from rubricsvc.formats.errors import InvalidFileError
from rubricsvc.formats.foreign import plain_weight, prompt_in, rubric_in
from rubricsvc.formats.input_file import InputFile, append_row
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.record import Entry, Record, Row

COLUMNS = ("prompt", "title", "weight", "category")
_PRESENT, _RESPONSE = "_present", "_response"
_VALUES = {"not satisfied": 0.0, "partially satisfied": 0.5, "satisfied": 1.0}
_SCALE = Ordinal(levels=tuple(Level(label=label.title(), value=value) for label, value in _VALUES.items()))


def read(file: InputFile) -> Iterator[Record]:
    """Yield the records of the tasks: a row with another prompt begins the next task."""
    tasks: list[list[Entry]] = []
    for row in file.parse(_row):
        if not tasks or row.data.get("prompt", tasks[-1][0].data["prompt"]) != tasks[-1][0].data["prompt"]:
            if "prompt" not in row.data:
                row.add("missing", "the first row has the prompt", ("prompt",))
                file.errors.add(*row.errors)
                return
            tasks.append([])
        append_row(tasks[-1], row)
    yield from file.parse(_records, (_grouped(file, number, rows) for number, rows in enumerate(tasks, start=1)))


def _row(entry: Entry) -> Iterator[Entry]:
    if not isinstance(entry.data, dict):
        entry.expected("dict_type", "a row with columns", entry.data)
        return
    entry.data = restored_row(entry.data)
    yield entry


def _grouped(file: InputFile, number: int, rows: list[Entry]) -> Entry:
    positions: dict[FieldPath, tuple[int, int]] = {
        (place,): (row.location.line or 1, 1) for place, row in enumerate(rows)
    }
    name = file.path.stem if number == 1 else f"{file.path.stem}-{number}"
    location = replace(rows[0].location, positions=positions)
    return replace(rows[0], data=[row.data for row in rows], location=location, name=name, number=number)


def _records(entry: Entry) -> Iterator[Record]:
    criteria = []
    for place, row in enumerate(entry.data):
        if "title" not in row:
            entry.add("missing", "is missing: the text of the criterion", (place, "title"))
            continue
        try:
            weight = float(row.get("weight", "1"))
        except ValueError:
            entry.expected("float_parsing", "a number", row["weight"], (place, "weight"))
            continue
        tags = (row["category"],) if row.get("category") else ()
        fields = {"key": f"c{place + 1}", "text": row["title"], "weight": weight, "tags": tags, "scale": _SCALE}
        criteria.append(entry.make(Criterion, (place,), **fields))
    models = dict.fromkeys(name.removesuffix(_PRESENT) for row in entry.data for name in row if name.endswith(_PRESENT))
    labelled = {model: tuple(_labels(entry, model)) for model in models}
    if entry.errors:
        raise InvalidFileError(entry.errors)
    prompt, name = Prompt.of(entry.data[0]["prompt"]), rubric_name(entry.name)
    rubric = entry.make(Rubric, (), criteria=tuple(criteria), formula="researchrubrics")
    for model, labels in labelled.items():
        text = entry.data[0].get(model + _RESPONSE)
        completions = (Completion(text=text, policy=model),) if text else ()
        yield Record(prompt, rubric, completions, labels, name=name, location=entry.location)
    if not labelled:
        yield Record(prompt, rubric, name=name, location=entry.location)


def _labels(entry: Entry, model: str) -> Iterator[Label]:
    for place, row in enumerate(entry.data):
        if (given := row.get(model + _PRESENT)) is None:
            continue
        if (value := _VALUES.get(given.strip().casefold())) is None:
            expected = "Satisfied, Partially Satisfied or Not Satisfied"
            entry.expected("unknown_level", expected, given, (place, model + _PRESENT))
        else:
            yield Label(criterion=f"c{place + 1}", annotator="dataset", value=value, note=f"response of {model}")


def dump(record: Record) -> Iterator[Row]:
    """Yield a row for each criterion."""
    rubric, prompt = rubric_in(record, "researchrubrics"), prompt_in(record, "researchrubrics")
    for place, criterion in enumerate(rubric.criteria):
        category = criterion.tags[0] if criterion.tags else ""
        row = {"title": criterion.text, "weight": plain_weight(criterion.weight), "category": category}
        yield {"prompt": prompt.text if place == 0 else "", **row}
