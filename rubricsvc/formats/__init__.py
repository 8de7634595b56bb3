"""Files in, records out. One module for each dialect; `FORMATS` names them.

A file is taken whole or not at all: every fault in it is gathered, with its line, what was expected and what was found,
and raised as one ``FormatError``. With ``skip_invalid`` the bad records are left out instead, and told.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.formats import (
    cherrl,
    deep_research_bench,
    gsm8k,
    healthbench,
    ifeval,
    native,
    openai_grader,
    paperbench,
    preferences,
)
from rubricsvc.formats.documents import documents
from rubricsvc.formats.errors import BadFileError, Fault, Faults, Place, refuse
from rubricsvc.formats.record import Record
from rubricsvc.formats.source import Source

__all__ = ["FORMATS", "BadFileError", "Fault", "Record", "Records", "guess", "load", "stream"]

FORMATS: dict[str, Callable[..., Iterator[Record]]] = {
    "native": native.read,
    "healthbench": healthbench.read,
    "deep_research_bench": deep_research_bench.read,
    "paperbench": paperbench.read,
    "ifeval": ifeval.read,
    "openai_grader": openai_grader.read,
    "llmbar": preferences.llmbar,
    "evalbiasbench": preferences.evalbiasbench,
    "gsm8k": gsm8k.read,
    "cherrl": cherrl.read,
}

_KNOWN_BY: dict[str, tuple[set[str], ...]] = {
    "healthbench": ({"prompt_id", "rubrics"}, {"prompt_id", "binary_labels"}),
    "deep_research_bench": ({"criterions", "dimension_weight"}, {"topic", "language", "prompt"}, {"article", "prompt"}),
    "paperbench": ({"requirements", "weight", "sub_tasks"},),
    "ifeval": ({"prompt", "instruction_id_list", "kwargs"},),
    "openai_grader": (
        {"item", "grader"},
        {"testing_criteria"},
        {"reinforcement", "type"},
        {"type", "input"},
        {"type", "source"},
        {"type", "graders"},
    ),
    "llmbar": ({"input", "output_1", "output_2", "label"},),
    "evalbiasbench": ({"bias", "instruction", "response1", "response2"},),
    "gsm8k": ({"question", "ground_truth"},),
    "cherrl": ({"sample_id", "prompt_input", "model_output"},),
    "native": ({"criteria"}, {"prompt", "completions"}),
}
"""The fields that tell a format: a record with all of any one set is of it."""

Examine = Callable[[Rubric, Place, Faults], None]


class Records(list[Record]):
    """The records of a file, and the faults of those that were ``skipped``."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped: list[Fault] = []


def load(path: str | Path, format: str | None = None, *, skip_invalid: bool = False, **options: str) -> Records:
    """All records of a file, or (DeepResearch Bench) of a folder.

    Args:
        format: a name in ``FORMATS``; without one it is told by the file's ending and fields.
        skip_invalid: leave bad records out, and tell them in ``.skipped``, instead of refusing the file.
        options: the format's own, such as ``language="en"`` for DeepResearch Bench.

    Raises:
        FormatError: the file is bad (``BadFileError`` with ``.faults``), not there, or of no format known here.
        InvalidError: no such format or option.
    """
    records = Records()
    on_skip = records.skipped.append if skip_invalid else None
    records.extend(stream(path, format, on_skip=on_skip, examine=None, **options))
    return records


def stream(
    path: str | Path | Source,
    format: str | None = None,
    *,
    on_skip: Callable[[Fault], None] | None = None,
    examine: Examine | None = None,
    **options: str,
) -> Iterator[Record]:
    """As ``load``, record by record. Use what it gives only once it has ended without an error.

    ``on_skip`` is told each fault, and the bad records are left out; without it they are an error. ``examine`` adds
    what else is wrong with a rubric that stands at a place.
    """
    source = path if isinstance(path, Source) else Source.of(path)
    name = format or guess(source)
    if name not in FORMATS:
        raise InvalidError(f"no format {name!r}", hint=f"there are: {', '.join(FORMATS)}")
    read: Callable[..., Iterator[Record]] = FORMATS[name]
    _refuse_unknown_options(name, read, options)
    faults = Faults()
    records = 0
    for record in read(source, faults, **options):
        before = faults.count
        if examine is not None and record.rubric is not None:
            examine(record.rubric, record.place or Place(source.name), faults)
        if faults.count > before:
            continue
        records += 1
        if on_skip is not None or not faults.count:
            yield record
    if on_skip is None:
        faults.raise_if_any(source.name)
    else:
        for fault in faults.told(source.name):
            on_skip(fault)
    if not records:
        raise refuse(source.place, "holds no record that can be used")


def _refuse_unknown_options(name: str, read: Callable[..., Any], options: dict[str, str]) -> None:
    known = list(inspect.signature(read).parameters)[2:]
    for option in options.keys() - set(known):
        hint = f"{name} knows: {', '.join(known)}" if known else f"{name} has no options"
        raise InvalidError(f"format {name} has no option {option!r}", hint=hint)


def guess(source: Source) -> str:
    """The name of the file's format, where its ending and the fields of its first record leave no doubt.

    Raises:
        FormatError: they do; the message names the formats.
    """
    if source.path.is_dir():
        if (source.path / "query.jsonl").is_file() and (source.path / "criteria.jsonl").is_file():
            return "deep_research_bench"
        raise refuse(source.place, "is a folder without query.jsonl and criteria.jsonl", _NAME_IT)
    faults = Faults()
    first, _ = next(documents(source, faults), (None, None))
    fields = set(first) if isinstance(first, dict) else set()
    fitting = [name for name, sets in _KNOWN_BY.items() if any(known <= fields for known in sets)]
    if len(fitting) == 1:
        return fitting[0]
    if source.path.suffix.lower() in (".yaml", ".yml") or faults.count:
        return "native"  # no other format is YAML; and a broken first line is told by the reader
    seen = f"its first record has {', '.join(sorted(fields)[:6])}" if fields else "its first record has no fields"
    raise refuse(source.place, f"cannot tell its format: {seen}", _NAME_IT)


_NAME_IT = f"name it with --format (format=): {', '.join(FORMATS)}"
