"""DeepResearch Bench (arXiv 2506.11763): a folder with query.jsonl, criteria.jsonl and any number of reports_*.jsonl.

Each task's criteria stand under four weighted dimensions. They become a two-level tree: a group for each dimension, the
criteria in it with their own weights, folded by the formula ``tree``. A report is a completion; its policy is the
report file's name without ``reports_``. Option ``language`` (``en`` or ``zh``) takes the tasks of one language only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.formats.errors import Faults, Place, refuse
from rubricsvc.formats.fields import Foreign, Model, build
from rubricsvc.formats.native import check_formula
from rubricsvc.formats.record import Record
from rubricsvc.formats.source import Source
from rubricsvc.formats.strictjson import json_lines

Text = Annotated[str, Field(min_length=1)]
Weight = Annotated[float, Field(ge=0)]


class _Query(Foreign):
    id: int
    prompt: Text
    language: str = ""
    topic: str = ""


class _Item(Foreign):
    criterion: Text
    explanation: str = ""
    weight: Weight


class _Criteria(Foreign):
    id: int
    prompt: str = ""
    dimension_weight: Annotated[dict[str, Weight], Field(min_length=1)]
    criterions: Annotated[dict[str, list[_Item]], Field(min_length=1)]


class _Report(Foreign):
    id: int
    article: str


def read(source: Source, faults: Faults, *, language: str | None = None) -> Iterator[Record]:
    """One record a task, in the order of query.jsonl; what is wrong goes to ``faults``.

    Raises:
        FormatError: query.jsonl or criteria.jsonl is not there, or a file cannot be read at all.
    """
    folder = source.path if source.path.is_dir() else source.path.parent
    queries = list(_rows(_Query, _beside(folder, "query.jsonl"), faults))
    _refuse_unknown_language(language, queries, source)
    wanted = {row.id for row, _ in queries if language in (None, row.language)}
    criteria = {row.id: (row, place) for row, place in _rows(_Criteria, _beside(folder, "criteria.jsonl"), faults)}
    reports = _reports(folder, wanted, {row.id for row, _ in queries}, faults)
    for query, place in queries:
        if query.id not in wanted:
            continue
        if query.id not in criteria:
            faults.add(place, f"task {query.id} has no line in criteria.jsonl")
            continue
        own, own_place = criteria[query.id]
        if own.prompt and own.prompt != query.prompt:
            faults.add(own_place, f"expected the prompt of task {query.id} in query.jsonl, found another", ("prompt",))
            continue
        rubric = _rubric(own, own_place, faults)
        if rubric is not None:
            prompt = Prompt.of(query.prompt, tags=[tag for tag in (query.topic, query.language) if tag])
            name = f"deep-research-bench-{query.id}"
            yield Record(prompt, rubric, tuple(reports.get(query.id, ())), id=name, name=name, place=own_place)


def _beside(folder: Path, name: str) -> Source:
    if not (folder / name).is_file():
        hint = "expected a folder with query.jsonl, criteria.jsonl and reports_*.jsonl"
        raise refuse(Place(str(folder)), f"has no {name}", hint)
    return Source.of(folder / name)


def _refuse_unknown_language(language: str | None, queries: list[tuple[_Query, Place]], source: Source) -> None:
    there = sorted({row.language for row, _ in queries})
    if language is not None and language not in there:
        raise refuse(source.place, f"has no task in language {language!r}", f"there are: {', '.join(there)}")


def _rows(model: type[Model], source: Source, faults: Faults) -> Iterator[tuple[Model, Place]]:
    seen: dict[int, int | None] = {}
    for data, place in json_lines(source, faults):
        row = build(model, data, place, faults)
        if row is None:
            continue
        id_: int = row.id  # type: ignore[attr-defined]  # every model here has one
        if id_ in seen:
            faults.add(place, f"id {id_} stands on line {seen[id_]} too; expected each id once", ("id",))
            continue
        seen[id_] = place.line
        yield row, place


def _reports(folder: Path, wanted: set[int], known: set[int], faults: Faults) -> dict[int, list[Completion]]:
    found: dict[int, list[Completion]] = {}
    for path in sorted(folder.glob("reports_*.jsonl")):
        policy = path.stem.removeprefix("reports_")
        for row, place in _rows(_Report, Source.of(path), faults):
            if row.id in wanted:
                found.setdefault(row.id, []).append(Completion(text=row.article, policy=policy))
            elif row.id not in known:
                faults.add(place, f"task {row.id} has no line in query.jsonl", ("id",))
    return found


def _rubric(row: _Criteria, place: Place, faults: Faults) -> Rubric | None:
    weights, items = row.dimension_weight, row.criterions
    for name in weights.keys() ^ items.keys():
        missing = "criterions" if name in weights else "dimension_weight"
        faults.add(place, f"dimension {name!r} is missing", (missing,))
    for name in (name for name, own in items.items() if not own):
        faults.add(place, "expected at least one criterion, found an empty list", ("criterions", name))
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
    rubric = build(Rubric, {"criteria": criteria, "groups": groups, "formula": "tree"}, place, faults)
    if rubric is not None:
        check_formula(rubric, place, faults)
    return rubric
