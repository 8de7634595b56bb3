"""DeepResearch Bench (arXiv 2506.11763): a folder with query.jsonl, criteria.jsonl and any number of reports_*.jsonl.

Each task has criteria in four weighted dimensions. They become a two-level tree: a group for each dimension, with the
weighted criteria in it, and the formula ``tree``. A report is a completion; its policy is the name of the report file
without ``reports_``. Option ``language`` (``en`` or ``zh``) selects the tasks of one language.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.formats.errors import FileErrors, Location, file_error
from rubricsvc.formats.fields import ForeignModel, Model, Text, build, rows
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.native import check_formula
from rubricsvc.formats.record import Record

Weight = Annotated[float, Field(ge=0)]


class _Query(ForeignModel):
    id: int
    prompt: Text
    language: str = ""
    topic: str = ""


class _Item(ForeignModel):
    criterion: Text
    explanation: str = ""
    weight: Weight


class _Criteria(ForeignModel):
    id: int
    prompt: str = ""
    dimension_weight: Annotated[dict[str, Weight], Field(min_length=1)]
    criterions: Annotated[dict[str, list[_Item]], Field(min_length=1)]


class _Report(ForeignModel):
    id: int
    article: str


def read(file: InputFile, *, language: str | None = None) -> Iterator[Record]:
    """Yield a record for each valid task, in the order of query.jsonl; errors are added to ``file.errors``.

    Raises:
        InvalidFileError: query.jsonl or criteria.jsonl is missing, or a file cannot be read at all.
    """
    if file.is_stream:  # its path is not a path of this machine
        hint = "import the folder with `rubricsvc rubrics import FOLDER`"
        raise file_error(file.location, "is_stream", "DeepResearch Bench is a folder, not a single file", hint)
    errors = file.errors
    queries = list(_rows(_Query, _sibling(file, "query.jsonl")))
    languages = sorted({row.language for row, _ in queries})
    if language is not None and language not in languages:
        hint = f"it has {', '.join(languages)}"
        raise file_error(file.location, "no_records", f"has no task in language {language!r}", hint)
    wanted = {row.id for row, _ in queries if language in (None, row.language)}
    criteria = {row.id: (row, location) for row, location in _rows(_Criteria, _sibling(file, "criteria.jsonl"))}
    reports = _reports(file, wanted, {row.id for row, _ in queries})
    for query, location in queries:
        if query.id not in wanted:
            continue
        if query.id not in criteria:
            errors.add(location, "unknown_task", f"task {query.id} has no line in criteria.jsonl")
            continue
        row, row_location = criteria[query.id]
        if row.prompt and row.prompt != query.prompt:
            message = f"is not the prompt that task {query.id} has in query.jsonl"
            errors.add(row_location, "value_error", message, ("prompt",))
            continue
        rubric = _rubric(row, row_location, errors)
        if rubric is not None:
            prompt = Prompt.of(query.prompt, tags=[tag for tag in (query.topic, query.language) if tag])
            name = f"deep-research-bench-{query.id}"
            yield Record(prompt, rubric, tuple(reports.get(query.id, ())), id=name, name=name, location=row_location)


def _sibling(file: InputFile, name: str) -> InputFile:
    folder = file.path if file.is_folder else file.path.parent
    if not (folder / name).is_file():
        hint = "expected a folder with query.jsonl, criteria.jsonl and reports_*.jsonl"
        raise file_error(Location(str(folder)), "not_found", f"has no {name}", hint)
    return InputFile(folder / name, errors=file.errors)


def _rows(model: type[Model], file: InputFile) -> Iterator[tuple[Model, Location]]:
    lines: dict[int, int | None] = {}
    for row, location in rows(model, file):
        id_: int = row.id  # type: ignore[attr-defined]  # every model here has one
        if id_ in lines:
            file.errors.add(location, "duplicate_key", f"duplicate id {id_}, first used on line {lines[id_]}", ("id",))
            continue
        lines[id_] = location.line
        yield row, location


def _reports(file: InputFile, wanted: set[int], known: set[int]) -> dict[int, list[Completion]]:
    completions: dict[int, list[Completion]] = {}
    folder = file.path if file.is_folder else file.path.parent
    for path in sorted(folder.glob("reports_*.jsonl")):
        policy = path.stem.removeprefix("reports_")
        for row, location in _rows(_Report, InputFile(path, errors=file.errors)):
            if row.id in wanted:
                completions.setdefault(row.id, []).append(Completion(text=row.article, policy=policy))
            elif row.id not in known:
                file.errors.add(location, "unknown_task", f"task {row.id} has no line in query.jsonl", ("id",))
    return completions


def _rubric(row: _Criteria, location: Location, errors: FileErrors) -> Rubric | None:
    weights, items = row.dimension_weight, row.criterions
    for name in weights.keys() ^ items.keys():
        missing = "criterions" if name in weights else "dimension_weight"
        errors.add(location, "missing", f"dimension {name!r} is missing", (missing,))
    for name in (name for name, own in items.items() if not own):
        errors.add(location, "too_short", "expected at least one criterion, found an empty list", ("criterions", name))
    if weights.keys() != items.keys() or not all(items.values()):
        return None
    criteria = [
        {
            "key": f"{dimension}-{number}",
            "text": f"{item.criterion}: {item.explanation}" if item.explanation else item.criterion,
            "weight": item.weight,
            "group": [dimension],
        }
        for dimension in weights
        for number, item in enumerate(items[dimension], start=1)
    ]
    groups = [{"path": [dimension], "weight": weight} for dimension, weight in weights.items()]
    rubric = build(Rubric, {"criteria": criteria, "groups": groups, "formula": "tree"}, location, errors)
    return None if rubric is None else check_formula(rubric, location, errors)
