"""Files into records. Each format is a module; ``FORMATS`` names them.

A file is used whole or not at all: all errors in it are collected, with line, field, what was expected and what was
found, and raised as one ``InvalidFileError``. With ``skip_invalid`` the invalid records are left out instead.

To add a format, write a module with a function that yields the records of one entry of the file (a line, or an element
of a list), validated by a pydantic model::

    class _Answer(ForeignModel):
        question: Text
        answer: Text

    def read(entry: Entry) -> Iterator[Record]:
        given = entry.build(_Answer, entry.data)
        yield Record(Prompt.of(given.question), None, (Completion(text=given.answer),), location=entry.location)

Then add it to ``FORMATS`` with the fields that identify it: ``"mine": _format(mine.read, "question answer")``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.formats import (
    cherrl,
    completions,
    criteria_csv,
    deep_research_bench,
    gsm8k,
    healthbench,
    ifeval,
    labels,
    native,
    openai_grader,
    paperbench,
    preferences,
    truthfulqa,
)
from rubricsvc.formats.errors import FieldError, InvalidFileError, file_error
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.record import Entry, Record, RubricCheck
from rubricsvc.formats.rubric_errors import rubric_errors

__all__ = [
    "FORMATS",
    "FieldError",
    "InputFile",
    "InvalidFileError",
    "Record",
    "Records",
    "RubricCheck",
    "detect",
    "load",
    "stream",
]


@dataclass(frozen=True)
class Format:
    """A format, and the ``fields`` that identify it: a record with all fields of one of these lists has this format.

    ``read`` yields the valid records of a file, and adds the errors of the others to ``file.errors``.
    """

    read: Callable[[InputFile], Iterator[Record]]
    fields: tuple[str, ...] = ()
    matches: Callable[[Any], bool] | None = None

    def identifies(self, first: Any) -> bool:
        """Return whether a file with this first record has this format."""
        fields = set(first) if isinstance(first, dict) else set()
        named = any(fields.issuperset(names.split()) for names in self.fields)
        return named or (self.matches is not None and self.matches(first))


def _format(read: Callable[[Entry], Iterable[Record]], *fields: str) -> Format:
    return Format(lambda file: file.parse(read), fields)


_DEEP_RESEARCH_BENCH = ("criterions dimension_weight", "topic language prompt", "article prompt")
_OPENAI = ("item grader", "testing_criteria", "reinforcement type", "type input", "type source", "type graders")
FORMATS = {
    "native": _format(native.read, "criteria", "prompt completions"),
    "healthbench": _format(healthbench.read, "prompt_id rubrics", "prompt_id binary_labels"),
    "deep_research_bench": Format(deep_research_bench.read, _DEEP_RESEARCH_BENCH),
    "deep_research_bench_en": Format(partial(deep_research_bench.read, language="en"), ()),
    "deep_research_bench_zh": Format(partial(deep_research_bench.read, language="zh"), ()),
    "paperbench": _format(paperbench.read, "requirements weight sub_tasks"),
    "ifeval": _format(ifeval.read, "prompt instruction_id_list kwargs"),
    "openai_grader": _format(openai_grader.read, *_OPENAI),
    "llmbar": _format(preferences.llmbar, "input output_1 output_2 label"),
    "evalbiasbench": _format(preferences.evalbiasbench, "bias instruction response1 response2"),
    "gsm8k": _format(gsm8k.read, "question ground_truth"),
    "criteria_csv": Format(criteria_csv.read, ()),
    "cherrl": _format(cherrl.read, "sample_id prompt_input model_output"),
    "truthfulqa": Format(truthfulqa.read, matches=truthfulqa.matches),
}


class Records(list[Record]):
    """The records of a file, and the errors of those that were ``skipped``."""

    def __init__(self, records: Iterable[Record], skipped: list[FieldError]) -> None:
        super().__init__(records)
        self.skipped = skipped


def load(path: str | Path, format: str | None = None, *, skip_invalid: bool = False) -> Records:
    """Return all records of a file, or (DeepResearch Bench) of a folder.

    Args:
        path: the file.
        format: a name in ``FORMATS``; by default it is recognized by the file's ending and fields.
        skip_invalid: leave invalid records out and list their errors in ``.skipped``, instead of rejecting the file.

    Raises:
        InvalidFileError: the file is invalid (``.errors`` lists what is wrong), missing, or of an unknown format.
        InvalidError: the format does not exist.
    """
    file = InputFile(path)
    return Records(stream(file, format, skip_invalid=skip_invalid), file.errors.errors)


def stream(
    file: InputFile, format: str | None = None, *, skip_invalid: bool = False, check: RubricCheck | None = None
) -> Iterator[Record]:
    """Yield the records of a file one by one, as `load` does. Use them only once it has ended without an error.

    ``file.errors`` has the errors of the records that were skipped. ``check`` is called with each rubric that will be
    stored, and an InvalidError that it raises is an error of the record.
    """
    name = format or detect(file)
    if name not in FORMATS:
        raise InvalidError(f"unknown format {name!r}", hint=f"expected one of {', '.join(FORMATS)}", path="format")
    errors, count, file.check = file.errors, 0, check
    owners: dict[tuple[str, str], str | None] = {}
    for record in FORMATS[name].read(file):
        before = errors.count
        if record.rubric is not None:
            conflicts = _name_conflicts(record, record.rubric, owners) if check is not None else ()
            errors.add(*rubric_errors(record.rubric, record.location, check), *conflicts)
        if errors.count == before:
            count += 1
            if skip_invalid or not errors.count:
                yield record
    if not skip_invalid:
        errors.raise_if_any()
    if not count:
        errors.raise_if_any("correct them: no record is valid")
        raise file_error(file.location, "no_records", "has no valid record")


def _name_conflicts(record: Record, rubric: Rubric, owners: dict[tuple[str, str], str | None]) -> Iterator[FieldError]:
    """Yield an error if an earlier record has this rubric, by name and content, for another prompt.

    ``owners`` has the digests of the prompts by name and digest of the rubric.
    """
    prompt = record.prompt.digest if record.prompt is not None else None
    owner = owners.setdefault((record.name, rubric.digest), prompt)
    if prompt is not None and prompt != owner:
        whose = "another prompt" if owner else "no prompt"
        message = f"rubric {record.name!r} with this content belongs to {whose}, in an earlier record; rename one"
        yield record.location.error("conflict", message, ("name",))


def detect(file: InputFile) -> str:
    """Return the name of the file's format, recognized by its ending and the fields of its first record.

    Raises:
        InvalidFileError: no format or several match; the message names the formats.
    """
    if file.is_folder:
        return "deep_research_bench"
    first = file.first()
    fields = set(first) if isinstance(first, dict) else set()
    matching = [name for name, one in FORMATS.items() if one.identifies(first)]
    if len(matching) == 1:
        return matching[0]
    if first is None or file.path.suffix.lower() in (".yaml", ".yml") or file.errors.count:
        return "native"  # no other format is YAML; and after a line that is not JSON, its error is what matters
    if not matching and get_close_matches("criteria", map(str, fields), cutoff=0.85):
        return "native"  # a misspelt field, and all other errors of the file
    if "prompt" in fields and ("rubric" in fields or fields.issubset(native.FIELDS)):
        return "native"  # a prompt alone, or a misspelt field beside it
    is_csv = file.path.suffix.lower() in (".csv", ".tsv")
    if is_csv and "criterion" in fields:
        return "criteria_csv"
    message = f"its first record has the fields {', '.join(sorted(fields)[:6])}" if fields else "has no fields"
    hint = f"name it with --format (format=): {', '.join(FORMATS)}"
    if completions.matches(first):
        hint = "these are completions without rubrics: import them with `rubricsvc completions import`"
    elif labels.matches(first):
        hint = "these are labels: import them with `rubricsvc labels import`"
    elif is_csv:
        hint = (
            "name the columns criterion, weight (of a rubric), or prompt, text, policy (of completions, for"
            " `rubricsvc completions import`)"
        )
    raise file_error(file.location, "unknown_format", f"unknown format: {message}", hint)
