"""DeepResearch Bench (arXiv 2506.11763): a folder with query.jsonl, criteria.jsonl and any number of reports_*.jsonl.

Each task has criteria in four weighted dimensions. They become a two-level tree: a group for each dimension, with the
weighted criteria in it, and the formula ``tree``. A report is a completion; its policy is the name of the report file
without ``reports_``. Option ``language`` (``en`` or ``zh``) selects the tasks of one language.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Group, Rubric
from rubricsvc.formats.entry import Entry, ForeignModel, Text
from rubricsvc.formats.errors import InvalidFileError, Location, file_error
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.record import Record

T = TypeVar("T")
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
    criterions: dict[str, Annotated[list[_Item], Field(min_length=1)]]


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
    folder = file.path if file.is_folder else file.path.parent
    queries = _rows(file, folder / "query.jsonl", _query)
    languages = sorted({query.language for query, _ in queries.values()})
    if language is not None and language not in languages:
        hint = f"it has {', '.join(languages)}"
        raise file_error(file.location, "no_records", f"has no task in language {language!r}", hint)
    tasks = _rows(file, folder / "criteria.jsonl", _task)
    reports = defaultdict(list)
    for path in sorted(folder.glob("reports_*.jsonl")):
        for id_, (article, location) in _rows(file, path, _article).items():
            reports[id_].append(Completion(text=article, policy=path.stem.removeprefix("reports_")))
            if id_ not in queries:
                file.errors.add(location.error("unknown_task", f"task {id_} has no line in query.jsonl", ("id",)))
    for id_, (query, query_location) in queries.items():
        if language not in (None, query.language):
            continue
        if id_ not in tasks:
            file.errors.add(query_location.error("unknown_task", f"task {id_} has no line in criteria.jsonl"))
            continue
        (asked, rubric), location = tasks[id_]
        if asked and asked != query.prompt:
            message = f"is not the prompt that task {id_} has in query.jsonl"
            file.errors.add(location.error("value_error", message, ("prompt",)))
            continue
        prompt = Prompt.of(query.prompt, tags=[tag for tag in (query.topic, query.language) if tag])
        name = f"deep-research-bench-{id_}"
        yield Record(prompt, rubric, tuple(reports[id_]), id=name, name=name, location=location)


def _rows(file: InputFile, path: Path, read: Callable[[Entry], tuple[int, T]]) -> dict[int, tuple[T, Location]]:
    """Return the rows of a file of the folder by id; errors are added to ``file.errors``."""
    if not path.is_file():
        hint = "expected a folder with query.jsonl, criteria.jsonl and reports_*.jsonl"
        raise file_error(Location(str(path.parent)), "not_found", f"has no {path.name}", hint)
    rows: dict[int, tuple[T, Location]] = {}

    def add(entry: Entry) -> list[None]:
        id_, row = read(entry)
        if id_ in rows:
            entry.add("duplicate_key", f"duplicate id {id_}, first used on line {rows[id_][1].line}", ("id",))
        else:
            rows[id_] = row, entry.location
        return []

    list(InputFile(path, errors=file.errors).parse(add))
    return rows


def _query(entry: Entry) -> tuple[int, _Query]:
    query = entry.build(_Query, entry.data)
    return query.id, query


def _article(entry: Entry) -> tuple[int, str]:
    report = entry.build(_Report, entry.data)
    return report.id, report.article


def _task(entry: Entry) -> tuple[int, tuple[str, Rubric]]:
    """Return the id of a task, with its prompt and its rubric."""
    row = entry.build(_Criteria, entry.data)
    for name in row.dimension_weight.keys() ^ row.criterions.keys():
        missing = "criterions" if name in row.dimension_weight else "dimension_weight"
        entry.add("missing", f"dimension {name!r} is missing", (missing,))
    if entry.errors:
        raise InvalidFileError(entry.errors)
    criteria = tuple(
        Criterion(
            key=f"{dimension}-{number}",
            text=f"{item.criterion}: {item.explanation}" if item.explanation else item.criterion,
            weight=item.weight,
            group=(dimension,),
        )
        for dimension in row.dimension_weight
        for number, item in enumerate(row.criterions[dimension], start=1)
    )
    groups = tuple(Group(path=(dimension,), weight=weight) for dimension, weight in row.dimension_weight.items())
    return row.id, (row.prompt, Rubric(criteria=criteria, groups=groups, formula="tree"))
