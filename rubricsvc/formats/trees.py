"""Trees of weighted requirements, which a mapping cannot say: PaperBench, and the folder of DeepResearch Bench.

PaperBench (arXiv 2504.01848): a leaf becomes a criterion, an inner node a group (paths begin at the root). The scores
of a graded tree's leaves become labels; those of inner nodes follow from them and are not read.

DeepResearch Bench (arXiv 2506.11763): query.jsonl, criteria.jsonl and any number of reports_*.jsonl. The four weighted
dimensions of a task become groups, and a report a completion of the policy in the name of its file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field, model_validator

from rubricsvc.core.base import MAX_NAME_LENGTH, UnitInterval
from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Group, Rubric
from rubricsvc.core.validation_messages import FieldPath
from rubricsvc.formats.errors import Location, file_error
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.native import numbered_keys, rubric_name
from rubricsvc.formats.record import Entry, ForeignModel, Record, Text

Weight = Annotated[float, Field(ge=0, le=1e9)]


class _Node(ForeignModel):
    id: Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH)]
    requirements: Text
    weight: Weight
    sub_tasks: tuple[_Node, ...]
    task_category: str | None = None
    finegrained_task_category: str | None = None
    score: UnitInterval | None = None
    valid_score: bool | float | None = None  # the human grades have true and 1.0
    explanation: str | None = None


def read_paperbench(entry: Entry) -> Iterator[Record]:
    """Yield the record of a tree."""
    nodes = list(_walk(entry.build(_Node, entry.data)))
    key_at = dict(zip((path for _, path in nodes), numbered_keys([node.id for node, _ in nodes]), strict=True))
    graded = any(node.score is not None for node, _ in nodes)
    criteria, groups, labels = [], [], []
    for node, path in nodes:
        key = key_at[path]
        above = tuple(key_at[path[:depth]] for depth in range(0, len(path), 2))
        if node.sub_tasks:
            weight = node.weight if above else 1.0  # the root has no sibling; 1 keeps its score exact
            groups.append(Group(path=(*above, key), weight=weight, text=node.requirements))
            continue
        tags = tuple(tag for tag in (node.task_category, node.finegrained_task_category) if tag)
        criteria.append(Criterion(key=key, text=node.requirements, weight=node.weight, group=above, tags=tags))
        if node.score is not None:
            is_valid = node.valid_score is None or node.valid_score  # the benchmark counts an invalid one as 0
            value = node.score if is_valid else None
            labels.append(Label(criterion=key, annotator="person 1", value=value, note=node.explanation))
        elif graded:
            entry.add("missing", "is missing, though other nodes have one", (*path, "score"))
    rubric = Rubric(criteria=tuple(criteria), groups=tuple(groups), formula="tree")
    name = rubric_name(f"paperbench-{entry.name}")
    yield Record(None, rubric, labels=tuple(labels), name=name, location=entry.location)


def _walk(node: _Node, path: FieldPath = ()) -> Iterator[tuple[_Node, FieldPath]]:
    """Yield every node in the order of the file, with its path. The depth is limited by `Entry.build`."""
    yield node, path
    for number, child in enumerate(node.sub_tasks):
        yield from _walk(child, (*path, "sub_tasks", number))


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
    dimension_weight: Annotated[dict[Annotated[str, Field(max_length=100)], Weight], Field(min_length=1)]
    criterions: dict[str, Annotated[list[_Item], Field(min_length=1)]]

    @model_validator(mode="after")
    def _same_dimensions(self) -> _Criteria:
        if different := self.dimension_weight.keys() ^ self.criterions.keys():
            names = ", ".join(map(repr, sorted(different)))
            raise ValueError(f"expected the same dimensions in dimension_weight and criterions, found {names} in one")
        return self

    @property
    def rubric(self) -> Rubric:
        """The criteria as a tree of two levels."""
        criteria = tuple(
            Criterion(
                key=f"{dimension}-{number}",
                text=f"{item.criterion}: {item.explanation}" if item.explanation else item.criterion,
                weight=item.weight,
                group=(dimension,),
            )
            for dimension in self.dimension_weight
            for number, item in enumerate(self.criterions[dimension], start=1)
        )
        groups = tuple(Group(path=(dimension,), weight=weight) for dimension, weight in self.dimension_weight.items())
        return Rubric(criteria=criteria, groups=groups, formula="tree")


class _Report(_Row):
    article: str


Row = TypeVar("Row", bound=_Row)
_PARTS = ("query.jsonl", "criteria.jsonl")


def is_deep_research_bench(folder: Path) -> bool:
    """Return whether a folder has the files of DeepResearch Bench."""
    return any((folder / name).is_file() for name in _PARTS)


def read_deep_research_bench(file: InputFile, *, language: str | None = None) -> Iterator[Record]:
    """Yield a record for each valid task, of one ``language`` if given; errors are added to ``file.errors``."""
    if file.is_stream:  # its path is not a path of this machine
        hint = "import the folder with `rubricsvc rubrics import FOLDER`"
        raise file_error(file.location, "is_stream", "DeepResearch Bench is a folder, not a single file", hint)
    folder = file.path if file.is_folder else file.path.parent
    queries, criteria = _rows(file, folder / _PARTS[0], _Query), _rows(file, folder / _PARTS[1], _Criteria)
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
        yield Record(prompt, row.rubric, tuple(reports[id_]), id=name, name=name, location=location)


def _rows(file: InputFile, path: Path, model: type[Row]) -> dict[int, tuple[Row, Location]]:
    """Return the rows of a file of the folder by id; errors are added to ``file.errors``."""
    if not path.is_file():
        hint = "expected a folder with query.jsonl, criteria.jsonl and reports_*.jsonl"
        raise file_error(Location(str(path.parent)), "not_found", f"has no {path.name}", hint)
    rows: dict[int, tuple[Row, Location]] = {}
    lines = InputFile(path, errors=file.errors)
    for row, location in lines.parse(lambda entry: [(entry.build(model, entry.data), entry.location)]):
        if (first := rows.setdefault(row.id, (row, location))[1]) is not location:
            message = f"duplicate id {row.id}, first used on line {first.line}"
            file.errors.add(location.error("duplicate_key", message, ("id",)))
    return rows
