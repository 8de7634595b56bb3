"""Weight trees, graded as by PaperBench (arXiv 2504.01848), in its order of operations so that floats are equal."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from functools import lru_cache, reduce

from rubricsvc.core.rubric import GroupPath, Rubric

_Node = GroupPath | str
"""An inner node by its path, or a leaf by its key."""

_Children = dict[GroupPath, dict[_Node, float]]
"""The children of each inner node with their weights, in the rubric's order."""


@lru_cache(maxsize=16)
def root_shares(rubric: Rubric) -> dict[str, float]:
    """Return each leaf's share of the root by absolute weight; all are 0 where a weight of 0 cuts off every leaf.

    The result is shared: do not change it.
    """
    children = _children(rubric)
    shares: dict[_Node, float] = {(): 1.0}
    for path in sorted(children, key=len):
        total = _sum(map(abs, children[path].values()))
        for child, weight in children[path].items():
            shares[child] = shares[path] * abs(weight) / total if total else 0.0
    return {key: shares[key] for key in rubric.by_key}


def grade(rubric: Rubric, values: Mapping[str, float]) -> tuple[float, dict[str, float]] | None:
    """Return the root's score and the contribution of each leaf in ``values``; None if none of them counts in the root.

    An inner node is max(0, Σ w·child / Σ_{w>0} w) over the children that hold a leaf of ``values``; the root has no
    floor. A node whose leaves all have negative weights is 1 + Σ w·v / Σ|w|. A node whose weights are all zero scores
    0. A node whose positive weights all belong to leaves that were not judged was not judged either. Leaves under a
    node at the floor contribute 0.
    """
    children = _children(rubric)
    scores: dict[_Node, float] = dict(values.items())
    parts: dict[GroupPath, dict[_Node, float]] = {}
    for path in sorted(children, key=len, reverse=True):
        judged = {child: weight for child, weight in children[path].items() if child in scores}
        graded = _grade_node(path, children[path], judged, scores)
        if graded is not None:
            scores[path], parts[path] = graded
    shares = root_shares(rubric)
    if () not in scores or not any(shares[key] for key in values):
        return None
    contributions: dict[_Node, float] = {(): 1.0}
    for path in sorted(parts, key=len):
        for child, part in parts[path].items():
            contributions[child] = contributions.get(path, 0.0) * part
    return scores[()], {key: contributions.get(key, 0.0) for key in values}


def _grade_node(
    path: GroupPath, weights: Mapping[_Node, float], judged: Mapping[_Node, float], scores: Mapping[_Node, float]
) -> tuple[float, dict[_Node, float]] | None:
    """Return a node's score, with the part of it that each leaf adds and the factor of each inner node's score.

    None where the node counts as not judged.
    """
    if total := _sum(weight for weight in judged.values() if weight > 0):
        score = _sum(scores[child] * weight for child, weight in judged.items()) / total
        if path and score < 0:
            return 0.0, {}
        factors = {child: weight / total for child, weight in judged.items()}
        return score, {
            child: factor * (scores[child] if isinstance(child, str) else 1.0) for child, factor in factors.items()
        }
    if max(weights.values()) <= 0 and (total := _sum(-weight for weight in judged.values())):
        absent = {child: -weight * (1.0 - scores[child]) for child, weight in judged.items()}
        return _sum(absent.values()) / total, {child: part / total for child, part in absent.items()}
    return (0.0, {}) if judged and path and not any(weights.values()) else None


@lru_cache(maxsize=16)  # the gain of each leaf grades the same tree again
def _children(rubric: Rubric) -> _Children:
    weights = {group.path: group.weight for group in rubric.groups}
    children: _Children = {(): {}}
    for leaf in rubric.criteria:
        for depth in range(len(leaf.group)):
            path = leaf.group[: depth + 1]
            children.setdefault(leaf.group[:depth], {})[path] = weights.get(path, 1.0)
        children.setdefault(leaf.group, {})[leaf.key] = leaf.weight
    return children


def _sum(numbers: Iterable[float]) -> float:
    """Add from left to right; the builtin ``sum`` corrects its rounding from Python 3.12 on, giving other floats."""
    return reduce(operator.add, numbers, 0.0)
