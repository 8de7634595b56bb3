"""Records into files: the native format, HealthBench, verl, OpenAI's graders, and CSV of criteria.

What a format cannot carry is found by reading back what was written: the fields that differ are lost.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from rubricsvc.core import strict_json
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Check, Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.formats import containers, native, yaml_records
from rubricsvc.formats.containers import neutralized
from rubricsvc.formats.errors import FileErrors, InvalidFileError, Location
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.mapping import FORMATS, builtin
from rubricsvc.formats.native import plain_weight, rubric_errors
from rubricsvc.formats.record import Entry, Record, Row
from rubricsvc.graders.written import grader_of

ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".parquet": "parquet"}
_CANARY = "canary:"


def _rubric_in(record: Record, format: str) -> Rubric:
    if record.rubric is None:
        raise InvalidError(f"{format} needs a rubric, and the record has none", hint="choose --format native")
    return record.rubric


def _prompt_in(record: Record, format: str) -> Prompt:
    if record.prompt is None:
        message = f"{format} needs a prompt, and rubric {record.name!r} is for any prompt"
        raise InvalidError(message, hint="choose a format without prompts, such as native", path="prompt")
    return record.prompt


def _messages(prompt: Prompt) -> list[Row]:
    return [message.openai for message in prompt.messages]


def _healthbench(record: Record) -> Iterator[Row]:
    rubric, prompt = _rubric_in(record, "healthbench"), _prompt_in(record, "healthbench")
    items = [
        {"criterion": one.text, "points": plain_weight(one.weight), "tags": list(one.tags)} for one in rubric.criteria
    ]
    canary = next((tag.removeprefix(_CANARY) for tag in prompt.tags if tag.startswith(_CANARY)), None)
    tags = [tag for tag in prompt.tags if not tag.startswith(_CANARY)]
    line: Row = {"prompt_id": record.id or record.name or "1", "prompt": _messages(prompt), "rubrics": items}
    yield line | {"example_tags": tags} | ({"canary": canary} if canary else {})


def _verl(record: Record) -> Iterator[Row]:
    """Yield the row of a rubric; a check becomes a rule where verl-rubric has its function."""
    rubric, prompt = _rubric_in(record, "verl"), _prompt_in(record, "verl")
    items: list[Row] = []
    for place, criterion in enumerate(rubric.criteria, start=1):
        tags: Row = {"key": criterion.key} if criterion.key != f"c{place}" else {}
        rule = _verl_rule(criterion.check) if criterion.check else None
        tags |= {"verifier": "rule", "function": rule[0], "parameters": rule[1]} if rule else {"verifier": "llm"}
        if criterion.check and not rule:  # a judge of theirs decides it; here it is a check again
            tags["check"] = strict_json.dump(criterion.check.model_dump(mode="json"))
        if criterion.tags:
            tags["tags"] = list(criterion.tags)
        items.append({"criterion": criterion.text, "points": criterion.weight, "tags": tags})
    source, ability, *_ = (*prompt.tags, "", "")
    model = {"style": "rubric", "rubrics": items, "ground_truth": prompt.reference or ""}
    shared: Row = {"prompt": _messages(prompt), "reward_model": model}
    extra = shared | ({"index": record.id} if record.id else {})
    yield {**shared, "data_source": source, "ability": ability, "extra_info": extra}


def _verl_rule(check: Check) -> tuple[str, Row] | None:
    """Return the function of verl-rubric, or the class of IFEval, that decides as a check does; None without one."""
    classes = {instruction: name for name, instruction in builtin("verl").tables["ifeval"].items()}
    match check.name, check.args:
        case "math", {"answer": answer, **others} if not others:
            return "math_verify", {"answer": answer}
        case "words", {"min": low, "max": high, "partial": False, **others} if not others:
            return "word_count_range", {"min_count": low, "max_count": high}
        case "ifeval", {"instruction_id": str(name), "kwargs": dict(kwargs)} if (
            name in classes and len(check.args) == 2
        ):
            return classes[name], kwargs
    return None


def _openai_grader(record: Record) -> Iterator[Row]:
    """Yield the grader of a rubric, beside its item where there is a prompt."""
    grader = grader_of(_rubric_in(record, "openai_grader"), record.name)
    if record.prompt is None:
        yield grader
        return
    item: Row = dict(record.prompt.item or {})
    item.setdefault("messages", _messages(record.prompt))
    if record.prompt.reference is not None:
        item.setdefault("reference", record.prompt.reference)
    yield {"item": item, "grader": grader} | ({"id": record.id} if record.id else {})


def _criteria_csv(record: Record) -> Iterator[Row]:
    prompt = record.prompt.text if record.prompt else ""
    for one in _rubric_in(record, "criteria_csv").criteria:
        fields = {"criterion": one.text, "weight": plain_weight(one.weight), "key": one.key}
        fields |= {"group": "/".join(one.group), "required": "yes" if one.required else ""}
        fields |= {"reference": one.reference or "", "tags": "; ".join(one.tags)}
        yield {"id": record.id or "", "name": record.name, "prompt": prompt, **fields}


def _native(record: Record) -> Iterator[Row]:
    yield native.plain(record)


WRITERS: dict[str, Callable[[Record], Iterator[Row]]] = {
    "native": _native,
    "healthbench": _healthbench,
    "verl": _verl,
    "openai_grader": _openai_grader,
    "criteria_csv": _criteria_csv,
}


@dataclass
class Losses:
    """How many records were written, and in how many of them each field was lost or changed."""

    records: int = 0
    fields: Counter[str] = field(default_factory=Counter)

    def add(self, written: Record, read: Record | None) -> None:
        """Count the fields in which a record differs from what is read back."""
        self.records += 1
        before, after = native.plain(written), native.plain(read) if read is not None else {}
        self.fields.update(set(_differences(before, after)))


def _differences(before: Row, after: Row) -> Iterator[str]:
    for name in before.keys() | after.keys():
        old, new = before.get(name), after.get(name)
        if name == "criteria" and isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
            for one, other in zip(old, new, strict=True):
                yield from (f"criteria[].{key}" for key in one.keys() | other.keys() if one.get(key) != other.get(key))
        elif old != new:
            yield name


def rows(records: Iterable[Record], format: str, losses: Losses) -> Iterator[Row]:
    """Yield the rows of the records in a format, and count in ``losses`` what it does not carry."""
    if format not in WRITERS:
        what = "cannot be written" if format in FORMATS else "does not exist"
        hint = f"choose one of {', '.join(WRITERS)}"
        raise InvalidError(f"the format {format!r} {what}", hint=hint, path="format")
    for record in records:
        try:
            written = list(WRITERS[format](record))
            losses.add(record, _read_back(written, record, format))
        except InvalidError as error:
            raise InvalidError(f"{record.name or 'a record'}: {error}", hint=error.hint, path=error.path) from error
        yield from written


def _read_back(written: list[Row], record: Record, format: str) -> Record | None:
    """Return the record that will be read from its rows."""
    errors, is_csv = FileErrors(), format == "criteria_csv"
    file = InputFile(f"{record.name or format}{'.csv' if is_csv else '.jsonl'}", errors=errors)
    given: Iterable[Row] = (json.loads(strict_json.dump(row)) for row in written)
    if is_csv:
        given = ({key: str(neutralized(cell)) for key, cell in row.items() if str(cell).strip()} for row in given)
    file.replace_entries(
        Entry(row, Location(format, number), file.path.stem, number, is_csv=is_csv)
        for number, row in enumerate(given, start=1)
    )
    try:
        read = next(iter(FORMATS[format].read(file)), None)
        if read is not None and read.rubric is not None:
            errors.add(*rubric_errors(read.rubric, read.location, None))
        errors.raise_if_any()
    except InvalidFileError as error:
        first = error.errors[0]
        message = f"{format} cannot carry it: {': '.join(filter(None, (first.path, first.message)))}"
        raise InvalidError(message, hint="choose another format", path=first.path) from error
    return read


def container_of(format: str, out: Path | None) -> str:
    """Return how rows of a format are written: by the ending of the file, else as the format is written."""
    endings = {".csv": "csv"} if format == "criteria_csv" else ENDINGS
    if format == "native":
        endings = {**endings, ".yaml": "yaml", ".yml": "yaml"}
    ending = out.suffix.lower() if out is not None else ""
    if ending and ending not in endings:
        message = f"{format} is not written to a file that ends in {ending!r}"
        raise InvalidError(message, hint=f"name a file that ends in {', '.join(endings)}", path="out")
    return endings.get(ending, next(iter(endings.values())))


def dump(records: Iterable[Record], out: str | Path, format: str = "native") -> Losses:
    """Write records to a file, in the container of its ending; return what the format does not carry."""
    path, losses = Path(out), Losses()
    container = container_of(format, path)
    if container == "parquet":
        containers.write_parquet(rows(records, format, losses), path)
    else:
        with path.open("w", encoding="utf-8", newline="") as stream:
            write_text(rows(records, format, losses), stream, container)
    return losses


def write_text(rows: Iterable[Row], stream: TextIO, container: str) -> None:
    """Write rows as ``jsonl``, ``json``, ``yaml`` or ``csv``.

    In CSV, text that a spreadsheet would take for a formula gets a single quote before it.
    """
    first = True
    for row in rows:
        if container == "csv":
            table = csv.writer(stream, lineterminator="\n")
            if first:
                table.writerow(row)
            table.writerow(map(neutralized, row.values()))
        elif container == "json":
            stream.write(("[\n" if first else ",\n") + strict_json.dump(row))
        elif container == "yaml":
            yaml_records.write(row, stream)
        else:
            stream.write(strict_json.dump(row) + "\n")
        first = False
    if container == "json":
        stream.write("[]\n" if first else "\n]\n")
