"""What a mapping cannot say: trees of PaperBench, ratings of Canvas, sections of AutoRubric, rules of verl.

PaperBench (arXiv 2504.01848): a leaf becomes a criterion, an inner node a group (paths begin at the root). The scores
of a graded tree's leaves become labels; those of inner nodes follow from them and are not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from html import unescape
from itertools import count
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from rubricsvc.core import strict_json
from rubricsvc.core.base import MAX_NAME_LENGTH, UnitInterval
from rubricsvc.core.rubric import Criterion, Group, Rubric
from rubricsvc.core.validation_messages import FieldPath
from rubricsvc.core.verdict import Label
from rubricsvc.formats.native import keys_of, rubric_name
from rubricsvc.formats.record import MISSING, Entry, Node, Placed, Record


class _Task(BaseModel):
    """A node of PaperBench. Unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    id: Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH)]
    requirements: Annotated[str, Field(min_length=1)]
    weight: Annotated[float, Field(ge=0, le=1e9)]
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


def ratings(entry: Entry, node: Node) -> Any:
    """Return the weight and the scale of a row of Canvas: its ratings, each in three columns."""
    row, path = node.value, node.path or ()
    found: list[tuple[str, str, float]] = []
    for number in count(1):  # the reader of CSV numbers repeated columns
        columns = [f"Rating {part}{f' {number}' * (number > 1)}" for part in ("Name", "Description", "Points")]
        if not row.keys() & set(columns):
            break
        name, text, points = (unescape(row.get(column, "")) for column in columns)
        try:
            found.append((name or points, text, float(points)))
        except ValueError:
            entry.expected("float_parsing", "a number of points", points, (*path, columns[2]))
    most = max((points for *_, points in found), default=0.0)
    if len(found) < 2 or most <= 0 or min(points for *_, points in found) < 0:
        message = f"expected two or more ratings with points from 0 up, found {len(found)}"
        entry.add("length", message, (*path, "Rating Points"))
        return MISSING
    levels = [{"label": name, "value": points / most, "text": text} for name, text, points in found]
    is_binary = [(one["label"], one["value"]) for one in levels] == [("Met", 1.0), ("Not met", 0.0)]
    scale = {} if is_binary else {"scale": Placed({"kind": "ordinal", "levels": levels}, (*path, "Rating Name"))}
    return Placed({"weight": most, **scale}, path)


def flattened(entry: Entry, node: Node) -> Any:
    """Return the criteria of AutoRubric's rubrics in one list, each with its section as ``group``, and guidelines.

    A rubric is a list of criteria and sections, a mapping with such a list, or one criterion.
    """
    data, path, guidelines = node.value, node.path or (), None
    while isinstance(data, dict) and "requirement" not in data:
        guidelines = guidelines or data.get("guidelines")
        name = next((one for one in ("rubric", "sections", "criteria") if data.get(one) is not None), "criteria")
        path, data = (*path, name), data.get(name)
    shared = {"guidelines": guidelines} if guidelines else {}
    if isinstance(data, dict):
        return [Placed({**data, **shared, "group": []}, path)]
    if not isinstance(data, list) or not data:
        entry.expected("list_type", "a list of criteria or sections", data, path)
        return MISSING
    flat: list[Any] = []
    for place, item in enumerate(data):
        inner = item.get("criteria") if isinstance(item, dict) else None
        title = str(item.get("name") or item.get("title") or "") if isinstance(inner, list) else ""
        for number, one in enumerate(inner if isinstance(inner, list) else [item]):
            where = (*path, place, "criteria", number) if isinstance(inner, list) else (*path, place)
            if isinstance(one, dict):
                flat.append(Placed({**one, **shared, "group": [title] if title else []}, where))
            else:
                entry.expected("model_type", "a criterion", one, where)
    if not flat and not entry.errors:
        entry.add("too_short", "expected at least one criterion", path)
    return flat
