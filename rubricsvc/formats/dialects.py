"""What a mapping cannot say: trees (PaperBench, DeepResearch Bench), spreadsheets of Canvas, AutoRubric's shapes, verl.

PaperBench (arXiv 2504.01848): a leaf becomes a criterion, an inner node a group (paths begin at the root). The scores
of a graded tree's leaves become labels; those of inner nodes follow from them and are not read.

DeepResearch Bench (arXiv 2506.11763): query.jsonl, criteria.jsonl and any number of reports_*.jsonl. The four weighted
dimensions of a task become groups, and a report a completion of the policy in the name of its file.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from html import unescape
from itertools import count
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, model_validator

from rubricsvc.core import strict_json
from rubricsvc.core.base import MAX_NAME_LENGTH, UnitInterval
from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Group, Rubric
from rubricsvc.core.validation_messages import FieldPath
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.native import keys_of, rubric_name
from rubricsvc.formats.record import MISSING, Entry, ForeignModel, Location, Node, Placed, Record, Row, Text, file_error

Weight = Annotated[float, Field(ge=0, le=1e9)]


class _Task(ForeignModel):
    id: Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH)]
    requirements: Text
    weight: Weight
    sub_tasks: tuple[_Task, ...]
    task_category: str | None = None
    finegrained_task_category: str | None = None
    score: UnitInterval | None = None
    valid_score: bool | float | None = None  # the human grades have true and 1.0
    explanation: str | None = None


def read_paperbench(entry: Entry) -> Iterator[Record]:
    """Yield the record of a tree."""
    nodes: list[tuple[_Task, FieldPath]] = []
    pending: list[tuple[_Task, FieldPath]] = [(entry.build(_Task, entry.data), ())]
    while pending:  # in the order of the file
        node, path = pending.pop()
        nodes.append((node, path))
        pending += [(child, (*path, "sub_tasks", n)) for n, child in reversed(list(enumerate(node.sub_tasks)))]
    key_at = dict(zip((path for _, path in nodes), keys_of([node.id for node, _ in nodes]), strict=True))
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


class _Line(ForeignModel):
    id: int


class _Query(_Line):
    prompt: Text
    language: str = ""
    topic: str = ""


class _Item(ForeignModel):
    criterion: Text
    explanation: str = ""
    weight: Annotated[float, Field(gt=0, le=1e9)]


class _Criteria(_Line):
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


class _Report(_Line):
    article: str


Line = TypeVar("Line", bound=_Line)
BENCH_FILES = ("query.jsonl", "criteria.jsonl")


def read_deep_research_bench(file: InputFile, *, language: str | None = None) -> Iterator[Record]:
    """Yield a record for each valid task, of one ``language`` if given; errors are added to ``file.errors``."""
    if file.is_stream:  # its path is not a path of this machine
        hint = "import the folder with `rubricsvc rubrics import FOLDER`"
        raise file_error(file.location, "is_stream", "DeepResearch Bench is a folder, not a single file", hint)
    folder = file.path if file.is_folder else file.path.parent
    queries, criteria = _rows(file, folder / BENCH_FILES[0], _Query), _rows(file, folder / BENCH_FILES[1], _Criteria)
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


def _rows(file: InputFile, path: Path, model: type[Line]) -> dict[int, tuple[Line, Location]]:
    """Return the rows of a file of the folder by id; errors are added to ``file.errors``."""
    if not path.is_file():
        hint = "expected a folder with query.jsonl, criteria.jsonl and reports_*.jsonl"
        raise file_error(Location(str(path.parent)), "not_found", f"has no {path.name}", hint)
    rows: dict[int, tuple[Line, Location]] = {}
    lines = InputFile(path, errors=file.errors)
    for row, location in lines.parse(lambda entry: [(entry.build(model, entry.data), entry.location)]):
        if (first := rows.setdefault(row.id, (row, location))[1]) is not location:
            message = f"duplicate id {row.id}, first used on line {first.line}"
            file.errors.add(location.error("duplicate_key", message, ("id",)))
    return rows


def verl(entry: Entry, node: Node, wanted: str, classes: Mapping[str, Any], *, has_check: bool) -> Any:
    """Return the key, the check or the other tags (``wanted``) of a criterion of verl, whose tags name them.

    The check is its own, or the one that decides as its function does; ``classes`` has the instructions of IFEval by
    the names of verl's functions. The tags of a rule are left only if no check was made of it (``has_check``).
    """
    rule, value, named, listed = ("verifier", "function", "parameters"), node.value, dict[str, Any](), list[str]()
    if isinstance(value, dict):
        named = {name: one for name, one in value.items() if one is not None}
        tags = named.pop("tags", [])
        listed = [str(one) for one in tags] if isinstance(tags, list) else []
    for text in value if isinstance(value, list) else ():
        name, _, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
        if name in (*rule, "key", "check"):
            named[name] = rest
        elif isinstance(text, str):
            listed.append(text)
    if wanted == "verl_key":
        return str(named["key"]) if named.get("key") else MISSING
    if wanted == "verl_rest":
        if not isinstance(value, list | dict):
            entry.expected("list_type", "a mapping, or a list of key:value", value, node.path or ())
        left_out = {"key", "check", *(rule if has_check or named.get("verifier") == "llm" else ())}
        texts = {name: one if isinstance(one, str) else strict_json.dump(one) for name, one in named.items()}
        return [f"{name}:{text}" for name, text in texts.items() if name not in left_out] + listed
    decoded: dict[str, Any] = {}
    for name in ("check", "parameters"):  # which may be JSON in a text
        one = named.get(name)
        with suppress(ValueError, RecursionError):
            decoded[name] = json.loads(one) if isinstance(one, str) else one
    if isinstance(decoded.get("check"), dict):
        return decoded["check"]
    if named.get("verifier") != "rule" or not named.get("function"):
        return MISSING
    function, given = str(named["function"]), decoded.get("parameters")
    parameters = {name: one for name, one in given.items() if one is not None} if isinstance(given, dict) else {}
    if function == "math_verify" and "answer" in parameters:
        return {"name": "math", "args": {"answer": str(parameters["answer"])}}
    if function == "word_count_range" and parameters.keys() >= {"min_count", "max_count"}:
        bounds = {"min": int(parameters["min_count"]), "max": int(parameters["max_count"])}
        return {"name": "words", "args": {**bounds, "partial": False}}
    if (instruction := classes.get(function)) is not None:  # Parquet and JSON of other writers make 2.0 of 2
        whole = {n: int(one) if isinstance(one, float) and one.is_integer() else one for n, one in parameters.items()}
        return {"name": "ifeval", "args": {"instruction_id": instruction, "kwargs": whole}}
    message = f"no check decides the function {function!r} with these parameters; a judge decides it"
    entry.add("rule", f"{message}: write a check into the rubric instead (docs/checks.md)", node.path or (), note=True)
    return MISSING


def _canvas(entry: Entry) -> Iterable[Any]:
    """Add to rows of Canvas a weight and a scale: the ratings, each in three columns. Canvas shows texts as HTML."""
    rows = []
    for place, cells in enumerate(entry.data):
        row = {name: unescape(cell) if isinstance(cell, str) else cell for name, cell in cells.items()}
        ratings = list(_ratings(entry, place, row))
        most = max((points for *_, points in ratings), default=0.0)
        if len(ratings) < 2 or most <= 0 or min(points for *_, points in ratings) < 0:
            message = f"expected two or more ratings with points from 0 up, found {len(ratings)}"
            entry.add("length", message, (place, "Rating Points"))
        else:
            row["weight"] = most
            levels = [{"label": name, "value": points / most, "text": text} for name, text, points in ratings]
            if [(one["label"], one["value"]) for one in levels] != [("Met", 1.0), ("Not met", 0.0)]:
                row["scale"] = Placed({"kind": "ordinal", "levels": levels}, (place, "Rating Name"))
        rows.append(Placed(row, (place,)))
    return [rows]


def _ratings(entry: Entry, place: int, row: Row) -> Iterator[tuple[str, str, float]]:
    for number in count(1):  # the reader of CSV numbers repeated columns
        suffix = "" if number == 1 else f" {number}"
        columns = [f"Rating {part}{suffix}" for part in ("Name", "Description", "Points")]
        if not row.keys() & set(columns):
            return
        name, text, points = (row.get(column, "") for column in columns)
        try:
            yield str(name or points), str(text), float(points)
        except ValueError:
            entry.expected("float_parsing", "a number of points", points, (place, columns[2]))


def autorubric_parts(file: InputFile) -> Iterator[Entry]:
    """Yield an entry for each rubric: criteria or sections that are the records of a document are one rubric."""
    parts: list[Entry] = []
    for entry in file.entries():
        data = entry.data if isinstance(entry.data, dict) else {}
        is_part = "requirement" in data or ("criteria" in data and not data.keys() & {"guidelines", "items"})
        if is_part and file.path.suffix.lower() not in (".jsonl", ".ndjson", ".parquet"):
            parts.append(entry)
        else:
            yield entry
    if len(parts) == 1 and "criteria" in parts[0].data:
        yield parts[0]
    elif parts:
        lines: dict[FieldPath, tuple[int, int]] = {
            (place,): (part.location.line or 1, part.location.column or 1) for place, part in enumerate(parts)
        }
        location = Location(parts[0].location.file, parts[0].location.line, positions=lines)
        yield replace(parts[0], data=[part.data for part in parts], location=location)


def _autorubric(entry: Entry) -> Iterable[Any]:
    """Return the rubric, or that of each submission, with its criteria in one list and their groups."""
    data = entry.data if isinstance(entry.data, dict) else {}
    shared: Row = {name: data[name] for name in ("name", "prompt", "reference_submission") if name in data}
    has_rubric = not isinstance(entry.data, dict) or "items" not in data or data.get("rubric") is not None
    flat = _flattened(entry, entry.data, ()) if has_rubric else None
    if not isinstance(data.get("items"), list):
        return [{**shared, **(flat or {})}]
    made = []
    for place, item in enumerate(data["items"]):
        path: FieldPath = ("items", place)
        own = item.get("rubric") if isinstance(item, dict) else None
        rubric = _flattened(entry, own, (*path, "rubric")) if own is not None else flat
        if not isinstance(item, dict):
            entry.expected("dict_type", "a submission", item, path)
        elif rubric is None:
            entry.add("missing", "expected a rubric, of the data set or of the item", path)
        else:
            number = {"number": f"-{place + 1}" if own is not None else ""}
            made.append({**shared, **rubric, **number, "item": Placed(item, path)})
    return made


def _flattened(entry: Entry, data: Any, path: FieldPath) -> Row:
    guidelines = data.get("guidelines") if isinstance(data, dict) else None
    if isinstance(data, dict) and isinstance(data.get("rubric"), dict):
        path, data = (*path, "rubric"), data["rubric"]
        guidelines = guidelines or data.get("guidelines")
    if isinstance(data, dict) and "requirement" in data:
        return {"criteria": [Placed({**data, "group": []}, path)], "guidelines": guidelines}
    if isinstance(data, dict):
        name = next((one for one in ("rubric", "sections", "criteria") if one in data), "criteria")
        path, data = (*path, name), data.get(name)
    if not isinstance(data, list) or not data:
        entry.expected("list_type", "a list of criteria or sections", data, path)
        return {}
    flat: list[Any] = []
    for place, item in enumerate(data):
        inner = item.get("criteria") if isinstance(item, dict) else None
        title = str(item.get("name") or item.get("title") or "") if isinstance(inner, list) else ""
        for number, one in enumerate(inner if isinstance(inner, list) else [item]):
            where = (*path, place, "criteria", number) if isinstance(inner, list) else (*path, place)
            if not isinstance(one, dict):
                entry.expected("model_type", "a criterion", one, where)
            else:
                flat.append(Placed({**one, "group": [title] if title else []}, where))
    if not flat and not entry.errors:
        entry.add("too_short", "expected at least one criterion", path)
    return {"criteria": flat, "guidelines": guidelines}


def is_autorubric(first: Any, *, plain: bool = False) -> bool:
    """Return whether a first record is of AutoRubric's form; ``plain``, of weights and requirements, and no more."""
    given = first if isinstance(first, dict) else {}
    if not plain and isinstance(given.get("items"), list) and "rubric" in given:
        return True
    criteria: list[Row] = _flattened(Entry(None, Location("")), first, ()).get("criteria", [])
    if not criteria or not all("requirement" in one for one in criteria):
        return False
    bare = all(one.keys() == {"weight", "requirement", "group"} for one in criteria)
    return not plain or (bare and not given.keys() & {"items", "guidelines", "criteria"})


PREPARATIONS: Mapping[str, Callable[[Entry], Iterable[Any]]] = {"autorubric": _autorubric, "canvas": _canvas}
