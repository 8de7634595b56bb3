"""PaperBench (arXiv 2504.01848): a tree of weighted requirements, bare or graded, as in openai/frontier-evals.

A leaf becomes a criterion, an inner node a group (paths begin at the root); the formula is ``tree``. The scores of a
graded tree's leaves become labels; those of inner nodes follow from them and are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from rubricsvc.core.base import MAX_NAME_LENGTH, UnitInterval
from rubricsvc.core.label import Label
from rubricsvc.core.rubric import Criterion, Group, Rubric
from rubricsvc.core.validation_messages import FieldPath
from rubricsvc.formats.native import numbered_keys, rubric_name
from rubricsvc.formats.record import Entry, ForeignModel, Record, Text


class _Node(ForeignModel):
    id: Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH)]
    requirements: Text
    weight: Annotated[float, Field(ge=0, le=1e9)]
    sub_tasks: tuple[_Node, ...]
    task_category: str | None = None
    finegrained_task_category: str | None = None
    score: UnitInterval | None = None
    valid_score: bool | float | None = None  # the human grades have true and 1.0
    explanation: str | None = None


def read(entry: Entry) -> Iterator[Record]:
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
