"""DeepResearch Bench (arXiv 2506.11763): a folder with query.jsonl, criteria.jsonl and any number of reports_*.jsonl.

Each task has criteria in four weighted dimensions. They become a two-level tree: a group for each dimension, with the
weighted criteria in it, and the formula ``tree``. A report is a completion; its policy is the name of the report file
without ``reports_``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field, model_validator

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Group, Rubric
from rubricsvc.formats.errors import Location, file_error
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.record import ForeignModel, Record, Text

Dimension = Annotated[str, Field(max_length=100)]


class _Row(ForeignModel):
    id: int


class _Query(_Row):
    prompt: Text
    language: str = ""
    topic: str = ""


class _Item(ForeignModel):
    criterion: Text
    explanation: str = ""
    weight: Annotated[float, Field(gt=0, le=1e9)]


class _Criteria(_Row):
    dimension_weight: Annotated[dict[Dimension, Annotated[float, Field(ge=0, le=1e9)]], Field(min_length=1)]
    criterions: dict[str, Annotated[list[_Item], Field(min_length=1)]]

    @model_validator(mode="after")
    def _same_dimensions(self) -> _Criteria:
        if different := self.dimension_weight.keys() ^ self.criterions.keys():
            names = ", ".join(map(repr, sorted(different)))
            raise ValueError(f"expected the same dimensions in dimension_weight and criterions, found {names} in one")
        return self


class _Report(_Row):
    article: str


Row = TypeVar("Row", bound=_Row)


def read(file: InputFile, *, language: str | None = None) -> Iterator[Record]:
    """Yield a record for each valid task, of one ``language`` if given; errors are added to ``file.errors``.

    Raises:
        InvalidFileError: query.jsonl or criteria.jsonl is missing, or a file cannot be read at all.
    """
    if file.is_stream:  # its path is not a path of this machine
        hint = "import the folder with `rubricsvc rubrics import FOLDER`"
        raise file_error(file.location, "is_stream", "DeepResearch Bench is a folder, not a single file", hint)
    folder = file.path if file.is_folder else file.path.parent
    queries = _rows(file, folder / "query.jsonl", _Query)
    criteria = _rows(file, folder / "criteria.jsonl", _Criteria)
    reports = defaultdict(list)
    for path in sorted(folder.glob("reports_*.jsonl")):
        for id_, (report, location) in _rows(file, path, _Report).items():
            reports[id_].append(Completion(text=report.article, policy=path.stem.removeprefix("reports_")))
            if id_ not in queries:
                file.errors.add(location.error("unknown_task", f"task {id_} has no line in query.jsonl", ("id",)))
    for id_, (query, query_location) in queries.items():
        if language not in (None, query.language):
            continue
        if id_ not in criteria:
            file.errors.add(query_location.error("unknown_task", f"task {id_} has no line in criteria.jsonl"))
            continue
        row, location = criteria[id_]
        prompt = Prompt.of(query.prompt, tags=[tag for tag in (query.topic, query.language) if tag])
        name = f"deep-research-bench-{id_}"
        yield Record(prompt, _rubric(row), tuple(reports[id_]), id=name, name=name, location=location)


def _rows(file: InputFile, path: Path, model: type[Row]) -> dict[int, tuple[Row, Location]]:
    """Return the rows of a file of the folder by id; errors are added to ``file.errors``."""
    if not path.is_file():
        hint = "expected a folder with query.jsonl, criteria.jsonl and reports_*.jsonl"
        raise file_error(Location(str(path.parent)), "not_found", f"has no {path.name}", hint)
    rows: dict[int, tuple[Row, Location]] = {}
    for row, location in InputFile(path, errors=file.errors).parse(
        lambda entry: [(entry.build(model, entry.data), entry.location)]
    ):
        if (first := rows.setdefault(row.id, (row, location))[1]) is not location:
            message = f"duplicate id {row.id}, first used on line {first.line}"
            file.errors.add(location.error("duplicate_key", message, ("id",)))
    return rows


def _rubric(row: _Criteria) -> Rubric:
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
    return Rubric(criteria=criteria, groups=groups, formula="tree")
