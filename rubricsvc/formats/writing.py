"""Records into files: the native format, HealthBench, verl, OpenAI's graders, and CSV of criteria.

What is written is read back, so that each file can be read; docs/formats.md says what each format loses.
"""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

import yaml

from rubricsvc.core import strict_json
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Binary, Check, Ordinal, Rubric, Scale
from rubricsvc.core.states import APPROVED
from rubricsvc.errors import InvalidError
from rubricsvc.formats import record as files
from rubricsvc.formats.input_file import SCALARS, YAML_TAG, InputFile, neutralized, restored
from rubricsvc.formats.mapping import FORMATS
from rubricsvc.graders.model import grader_of

ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json"}


def plain(record: files.Record) -> dict[str, Any]:
    """Return the record as plain data in this format, without the fields that have their defaults."""
    data: dict[str, Any] = {"id": record.id} if record.id is not None else {}
    if record.name:
        data["name"] = record.name
    if record.state != APPROVED:
        data["state"] = record.state
    if record.prompt is not None:
        fields = record.prompt.model_dump(mode="json", exclude_defaults=True)
        messages = fields.pop("messages")
        text = messages[0]["content"]
        is_text = len(messages) == 1 and messages[0]["role"] == "user" and text.strip() and not text.endswith("\n")
        data |= {"prompt": text if is_text else messages, **fields}
    if record.rubric is not None:
        data |= record.rubric.model_dump(mode="json", exclude_defaults=True)
        for fields, criterion in zip(data["criteria"], record.rubric.criteria, strict=True):
            if "scale" in fields:  # its kind is a default too, and must not be left out
                fields["scale"]["kind"] = criterion.scale.kind
            if "weight" in fields:
                fields["weight"] = plain_number(criterion.weight)
        for fields, example in zip(data.get("examples", ()), record.rubric.examples or (), strict=True):
            if example.prompt is not None and example.prompt == Prompt.of(example.prompt.text):
                fields["prompt"] = example.prompt.text + "\n" * example.prompt.text.endswith("\n")
            for key, expected in (example.verdicts or {}).items():
                if expected.number is not None:
                    fields["verdicts"][key] = plain_number(expected.number)
            if example.reward is not None and example.reward.number is not None:
                fields["reward"] = plain_number(example.reward.number)
    if record.completions:
        data["completions"] = [
            {"text": completion.text, **completion.model_dump(mode="json", exclude_defaults=True)}
            for completion in record.completions
        ]
    given = record.given_labels or tuple(files.GivenLabel(label=label) for label in record.labels)
    values = [one.label.value if one.level is None else one.level for one in given]
    if any(one.label.note is not None for one in given):
        labels = (one.label.model_dump(mode="json", exclude_none=True) for one in given)
        data["labels"] = [{**label, "value": value} for label, value in zip(labels, values, strict=True)]
    elif given:
        by_key = data["labels"] = dict[str, dict[str, Any]]()
        for one, value in zip(given, values, strict=True):
            by_key.setdefault(one.label.criterion, {})[one.label.annotator] = value
    if record.rubric_ref is not None:
        data["rubric"] = record.rubric_ref
    return data


def plain_number(number: float) -> float:
    """Return a number as an integer where it is one, so that files look as people write them."""
    return int(number) if number.is_integer() else number


WRITERS = ("native", "healthbench", "verl", "openai_grader", "criteria_csv")


def _rows(record: files.Record, rubric: Rubric, format: str) -> Iterator[files.Row]:
    """Yield the rows of a record in a format that is not the native one."""
    prompt = record.prompt
    messages = [one.openai for one in prompt.messages] if prompt is not None else []
    tags, reference = (prompt.tags, prompt.reference) if prompt is not None else ((), None)
    shared: files.Row
    match format:
        case "healthbench":
            items: list[files.Row] = [
                {"criterion": one.text, "points": plain_number(one.weight), "tags": list(one.tags)}
                for one in rubric.criteria
            ]
            canary = next((tag.removeprefix("canary:") for tag in tags if tag.startswith("canary:")), None)
            shared = {"prompt_id": record.id or record.name or "1", "prompt": messages, "rubrics": items}
            shared["example_tags"] = [tag for tag in tags if not tag.startswith("canary:")]
            yield shared | ({"canary": canary} if canary else {})
        case "verl":
            items = []
            for place, one in enumerate(rubric.criteria, start=1):
                named: files.Row = {"key": one.key} if one.key != f"c{place}" else {}
                if one.check is not None:  # a judge of theirs decides it; here it is a check again
                    named["check"] = strict_json.dump(one.check.model_dump(mode="json"))
                named |= {"verifier": "llm"} | ({"tags": list(one.tags)} if one.tags else {})
                items.append({"criterion": one.text, "points": one.weight, "tags": named})
            source, ability, *_ = (*tags, "", "")
            model = {"style": "rubric", "rubrics": items, "ground_truth": reference or ""}
            shared = {"prompt": messages, "reward_model": model}
            extra = shared | ({"index": record.id} if record.id else {})
            yield {**shared, "data_source": source, "ability": ability, "extra_info": extra}
        case "openai_grader" if prompt is None:
            yield grader_of(rubric, record.name)
        case "openai_grader":  # beside its item
            known = {"reference": reference} if reference is not None else {}
            item: files.Row = {"messages": messages, **known, **(prompt.item or {} if prompt else {})}
            yield {"item": item, "grader": grader_of(rubric, record.name)} | ({"id": record.id} if record.id else {})
        case _:  # criteria_csv
            for one in rubric.criteria:
                fields = {"criterion": one.text, "weight": plain_number(one.weight), "key": one.key}
                fields |= {"group": "/".join(one.group), "required": "yes" if one.required else ""}
                fields |= {"reference": one.reference or "", "tags": "; ".join(one.tags), "scale": _cell(one.scale)}
                fields |= {"check": _cell(one.check), "formula": rubric.formula, "state": record.state}
                yield {"id": record.id or "", "name": record.name, "prompt": prompt.text if prompt else "", **fields}


def _cell(part: Scale | Check | None) -> str:
    if part is None or isinstance(part, Binary):
        return ""
    if isinstance(part, Ordinal) and not any(level.text for level in part.levels):
        return strict_json.dump({level.label: level.value for level in part.levels})
    return strict_json.dump(part.model_dump(mode="json"))


def rows(records: Iterable[files.Record], format: str, lost: Counter[str] | None = None) -> Iterator[files.Row]:
    """Yield the rows of the records in a format; ``lost`` counts the records with each field that it cannot carry.

    A format that is not written, or cannot carry a record, is an InvalidError; CSV must carry all of it.
    """
    if format not in WRITERS:
        what = "cannot be written" if format in FORMATS else "does not exist"
        raise InvalidError(f"the format {format!r} {what}", hint=f"choose one of {', '.join(WRITERS)}", path="format")
    names = set[str]()
    for record in records:
        try:
            if format == "native":
                written = [plain(record)]
            elif record.rubric is None:
                raise InvalidError(f"{format} needs a rubric, and it has none", hint="choose --format native")
            elif record.prompt is None and format in ("healthbench", "verl"):
                hint = "choose a format without prompts, such as native"
                raise InvalidError(f"{format} needs a prompt, and the rubric is for any", hint=hint, path="prompt")
            else:
                written = list(_rows(record, record.rubric, format))
            missing = _lost(record, _read_back(written, record, format))
            missing += ["two versions of a name"] if format == "criteria_csv" and record.name in names else []
            names.add(record.name)
            if missing and (format == "criteria_csv" or "state" in missing):
                message = f"{format} cannot carry {', '.join(missing)}"
                raise InvalidError(message, hint="choose --format native, which carries all", path=missing[0])
            if lost is not None:
                lost.update(missing)
        except InvalidError as error:
            raise InvalidError(f"{record.name or 'a record'}: {error}", hint=error.hint, path=error.path) from error
        yield from written


def _lost(record: files.Record, read: files.Record) -> list[str]:
    """Return the names of the fields that are others where a record was read back."""
    lost = ["state"] if record.state != read.state else []
    if record.rubric is not None and read.rubric is not None:
        before, after = (rubric.model_dump(mode="json") for rubric in (record.rubric, read.rubric))
        pairs = [(before, after), *zip(before.pop("criteria"), after.pop("criteria"), strict=False)]
        lost += [name for one, other in pairs for name in one if one[name] != other[name]]
    if read.text_only and record.prompt is not None and read.prompt is not None:
        one, other = record.prompt, read.prompt
        same = one == other if record.id is None else one.messages == other.messages  # with an id, the stored prompt
        lost += [] if same else ["prompt"]
    return list(dict.fromkeys(lost))


def _read_back(written: list[files.Row], record: files.Record, format: str) -> files.Record:
    """Read the rows of a record, to find what the format cannot carry."""
    errors, is_csv, name = files.FileErrors(), format == "criteria_csv", record.name or format
    given: Iterable[files.Row] = (json.loads(strict_json.dump(row)) for row in written)
    if is_csv:
        given = (
            {key: restored(str(neutralized(cell))) for key, cell in row.items() if str(cell).strip()} for row in given
        )
    path = Path(f"{name}{'.csv' if is_csv else '.jsonl'}")
    entries = (
        files.Entry(row, files.Location(format, number), path.stem, number, is_csv=is_csv)
        for number, row in enumerate(given, start=1)
    )
    try:
        for read in FORMATS[format].read(InputFile(path, errors=errors, given=entries)):
            errors.add(*(files.rubric_errors(read.rubric, read.location, None) if read.rubric is not None else ()))
            errors.raise_if_any()
            return read
        errors.raise_if_any()
    except files.InvalidFileError as error:
        first = error.errors[0]
        message = f"{format} cannot carry it: {': '.join(filter(None, (first.path, first.message)))}"
        raise InvalidError(message, hint="choose another format", path=first.path) from error
    raise AssertionError("a record without an error")


def container_of(format: str, out: Path | None) -> str:
    """Return how rows of a format are written: by the ending of the file, else as the format is written."""
    endings = {".csv": "csv"} if format == "criteria_csv" else ENDINGS
    if format == "native":
        endings = {**endings, ".yaml": "yaml", ".yml": "yaml"}
    ending = out.suffix.lower() if out is not None else ""
    if ending and ending not in endings:
        message = f"{format} is not written to a file that ends in {ending!r}"
        hint = "use --format criteria_csv" if ending == ".csv" else f"name a file that ends in {', '.join(endings)}"
        raise InvalidError(message, hint=hint, path="out")
    return endings.get(ending, next(iter(endings.values())))


def write_text(rows: Iterable[files.Row], stream: TextIO, container: str) -> None:
    """Write rows as ``jsonl``, ``json``, ``yaml`` or ``csv``.

    In CSV, text that a spreadsheet would take for a formula gets a single quote before it.
    """
    number = 0
    for number, row in enumerate(rows, start=1):
        if container == "csv":
            table = csv.writer(stream, lineterminator="\n")
            if number == 1:
                table.writerow(row)
            table.writerow(map(neutralized, row.values()))
        elif container == "json":
            stream.write(("[\n" if number == 1 else ",\n") + strict_json.dump(row))
        elif container == "yaml":
            write_yaml(row, stream)
        else:
            stream.write(strict_json.dump(row) + "\n")
    if container == "json":
        stream.write("\n]\n" if number else "[]\n")


_ESCAPED = re.compile(r"[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
"""Characters that YAML folds, forbids or takes for the end of a line: NEL, controls, a byte order mark."""


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.1 or 1.2 reads as something else, and writes long text as a block."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    if _ESCAPED.search(value) or any(pattern.fullmatch(value) for pattern in SCALARS.values()):
        style = '"'  # the only style with escapes
    return dumper.represent_scalar(YAML_TAG + "str", value, style=style)


_Dumper.add_representer(str, _represent_text)


def write_yaml(data: dict[str, Any], stream: TextIO) -> None:
    """Write one document, beginning with ``---``, that any reader of YAML 1.1 or 1.2 reads back as it was."""
    yaml.dump(data, stream, Dumper=_Dumper, allow_unicode=True, sort_keys=False, explicit_start=True, width=110)
