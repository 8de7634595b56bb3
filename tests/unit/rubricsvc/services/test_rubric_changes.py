"""Differences of rubrics in words."""

from __future__ import annotations

from typing import Any

from rubricsvc.core.rubric import Check, Criterion, Numeric, Rubric
from rubricsvc.services.versions import changes

A, B = Criterion(key="a", text="Is kind.", weight=3), Criterion(key="b", text="Is brief.")
OLD = Rubric(criteria=(A, B))


def with_a(**fields: Any) -> Rubric:
    return Rubric(criteria=(A.model_copy(update=fields), B))


CASES: list[tuple[Rubric, str, str | None, str]] = [
    (with_a(weight=1.0), "changed", "weight", "a: weight 3 → 1 (share of all weights 75% → 50%)"),
    (with_a(text="Is very kind."), "changed", "text", "a: text “Is kind.” → “Is very kind.”"),
    (with_a(key="kind"), "changed", "key", "kind: key “a” → “kind”"),
    (with_a(required=True), "changed", "required", "a: required false → true"),
    (
        with_a(scale=Numeric(high=5)),
        "changed",
        "scale",
        'a: scale {"kind": "binary"} → {"kind": "numeric", "low": 0.0, "high": 5.0}',
    ),
    (with_a(reference="So."), "changed", "reference", "a: reference none → “So.”"),
    (with_a(tags=("x",)), "changed", "tags", 'a: tags none → ["x"]'),
    (
        with_a(check=Check(name="words", args={"max": 9})),
        "changed",
        "check",
        'a: check none → {"name": "words", "args": {"max": 9}}',
    ),
    (OLD.model_copy(update={"min_coverage": 0.5}), "changed", "min_coverage", "min coverage 1 → 0.5"),
    (OLD.model_copy(update={"formula": "mean"}), "changed", "formula", "formula “weighted_mean” → “mean”"),
    (Rubric(criteria=(A,)), "removed", None, "b: removed: “Is brief.” (weight 1)"),
    (
        Rubric(criteria=(A, B, Criterion(key="c", text="Is rude.", weight=-2))),
        "added",
        None,
        "c: added: “Is rude.” (weight -2)",
    ),
    (Rubric(criteria=(B, A)), "changed", "criteria", "the criteria are in another order"),
]


def test_changes_says_each_difference_in_words() -> None:
    for new, kind, field, words in CASES:
        (change,) = changes(OLD, new)
        assert (change.kind, change.field, str(change)) == (kind, field, words)
        assert len(changes(new, OLD)) == 1 and changes(new, new) == []
