"""PaperBench (arXiv 2504.01848): a tree of weighted requirements, bare or graded, as in openai/frontier-evals.

A leaf becomes a criterion, a node above leaves a group (paths begin at the root), and the rubric folds by ``tree``. The
scores of a graded tree's leaves are its labels; those of the nodes above follow from them, and are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Annotated, Any

from pydantic import Field

from rubricsvc.core.base import MAX_NAME_LENGTH, UnitInterval
from rubricsvc.core.rubric import GroupPath, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.formats.documents import documents
from rubricsvc.formats.errors import Faults, Place, Steps
from rubricsvc.formats.fields import Foreign, build
from rubricsvc.formats.native import check_formula, usable_name
from rubricsvc.formats.record import Record
from rubricsvc.formats.source import Source


class _Node(Foreign):
    id: Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH)]
    requirements: Annotated[str, Field(min_length=1)]
    weight: Annotated[float, Field(ge=0, le=1e9)]
    sub_tasks: tuple[_Node, ...]
    task_category: str | None = None
    finegrained_task_category: str | None = None
    score: UnitInterval | None = None
    valid_score: bool | float | None = None  # the human grades have true and 1.0
    explanation: str | None = None


def read(source: Source, faults: Faults) -> Iterator[Record]:
    """One record a tree; what is wrong goes to ``faults``.

    Raises:
        FormatError: the file cannot be read at all.
    """
    for number, (data, place) in enumerate(documents(source, faults), start=1):
        name = source.stem if number == 1 else f"{source.stem}-{number}"
        record = _record(data, place, faults, usable_name(f"paperbench-{name}"))
        if record is not None:
            yield record


def _record(data: Any, place: Place, faults: Faults, name: str) -> Record | None:
    before = faults.count
    root = build(_Node, data, place, faults)
    if root is None:
        return None
    nodes = list(_walk(root))
    key_at = dict(zip((steps for _, steps in nodes), _keys([node.id for node, _ in nodes]), strict=True))
    graded = any(node.score is not None for node, _ in nodes)
    criteria, groups, labels = [], [], []
    for node, steps in nodes:
        above = tuple(key_at[steps[:depth]] for depth in range(0, len(steps), 2))
        if node.sub_tasks:
            groups.append(_group(node, (*above, key_at[steps])))
            continue
        criteria.append(_criterion(node, key_at[steps], above))
        label = _label(node, key_at[steps])
        if label is not None:
            labels.append(label)
        elif graded:
            faults.add(place, "is missing, though other nodes have one", (*steps, "score"))
    rubric = build(Rubric, {"criteria": criteria, "groups": groups, "formula": "tree"}, place, faults)
    if rubric is not None:
        check_formula(rubric, place, faults)
    if rubric is None or faults.count > before:
        return None
    return Record(None, rubric, labels=tuple(labels), name=name, place=place)


def _walk(root: _Node) -> Iterator[tuple[_Node, Steps]]:
    """Every node in the order of the file, with the way to it."""
    waiting: list[tuple[_Node, Steps]] = [(root, ())]
    while waiting:
        node, steps = waiting.pop()
        yield node, steps
        below = [(child, (*steps, "sub_tasks", number)) for number, child in enumerate(node.sub_tasks)]
        waiting.extend(reversed(below))


def _keys(ids: list[str]) -> list[str]:
    """The ids, counted on where one is repeated: several trees of the benchmark use one twice."""
    taken, keys = set(ids), []
    first = set(ids)
    numbers: dict[str, Iterator[int]] = {}
    for id_ in ids:
        key = id_
        if id_ not in first:
            further = (f"{id_[: MAX_NAME_LENGTH - 8]}-{number}" for number in numbers.setdefault(id_, count(2)))
            key = next(name for name in further if name not in taken)
            taken.add(key)
        first.discard(id_)
        keys.append(key)
    return keys


def _group(node: _Node, path: GroupPath) -> dict[str, Any]:
    # the root's own weight means nothing, as it has no sibling; times 1 and over 1 leaves its score as it is
    return {"path": path, "weight": node.weight if len(path) > 1 else 1.0, "text": node.requirements}


def _criterion(node: _Node, key: str, group: GroupPath) -> dict[str, Any]:
    tags = [tag for tag in (node.task_category, node.finegrained_task_category) if tag]
    return {"key": key, "text": node.requirements, "weight": node.weight, "group": group, "tags": tags}


def _label(node: _Node, key: str) -> Verdict | None:
    if node.score is None:
        return None
    if node.valid_score is not None and not node.valid_score:  # the benchmark counts it as 0; here it is no finding
        return Verdict.abstained(key, rationale=node.explanation)
    return Verdict.scored(key, node.score, rationale=node.explanation)
