"""Weights that make other criteria count for nothing, and checks that pay for an empty text."""

from __future__ import annotations

from collections.abc import Iterator

from rubricsvc.core.formulas import FORMULAS, absolute_weights
from rubricsvc.core.rubric import Criterion
from rubricsvc.lint.registry import LintHit, Subject, rule

DOMINANT_SHARE = 0.5
"""Of the positive weight, above which one criterion decides the reward."""
MET = 0.5
"""Value from which a criterion counts as met."""


@rule(
    "dominant-weight",
    "warning",
    why="The reward is then this one verdict, with its errors; the others hardly move it, and a policy learns"
    " nothing from them.",
    fix="Divide the criterion, lower its weight, or make it required if nothing counts without it.",
    bad="weights 10, 1, 1, 1",
    good="weights 4, 3, 2, 1",
)
def dominant_weight(subject: Subject) -> Iterator[LintHit]:
    """Find one criterion with more than half of the weight, among three or more."""
    rubric = subject.rubric
    if rubric.groups or rubric.expression is not None:
        return  # the tree or the expression decides what a weight means
    for positive in (True, False):
        side = [one for one in rubric.criteria if one.weight and (one.weight > 0) is positive]
        total = sum(abs(one.weight) for one in side)
        for criterion in side if len(side) >= 3 else ():
            if abs(criterion.weight) > DOMINANT_SHARE * total and len({abs(one.weight) for one in side}) > 1:
                kind = "positive" if positive else "negative"
                share = abs(criterion.weight) / total
                yield LintHit(criterion, f"has {share:.0%} of the {kind} weight of {len(side)} criteria")


@rule(
    "zero-weight",
    "info",
    why="It is judged and paid for, and never changes a reward.",
    fix="Give it a weight, or remove it.",
    bad="Names the author. (weight 0)",
    good="Names the author. (weight 1)",
)
def zero_weight(subject: Subject) -> Iterator[LintHit]:
    """Find criteria that never change the reward."""
    for criterion in subject.rubric.criteria:
        if counts_for_nothing(subject, criterion):
            yield LintHit(criterion, "the weight is 0")


def counts_for_nothing(subject: Subject, criterion: Criterion) -> bool:
    """Return whether no verdict on the criterion changes the reward."""
    formula = FORMULAS.get(subject.rubric.formula)
    weighted = formula is not None and formula.weights is absolute_weights and subject.rubric.expression is None
    return weighted and criterion.weight == 0.0 and not criterion.required


@rule(
    "empty-passes",
    "error",
    why="A completion that says nothing earns this weight. A policy finds that out before it learns anything else.",
    fix="Add a check that an empty text fails, such as check: {words: {min: 20}} with required: true, or make the"
    " criterion a pitfall.",
    bad="check: {words: {max: 200}}, weight 2",
    good="check: {words: {min: 20, max: 200}}, weight 2",
)
def empty_passes(subject: Subject) -> Iterator[LintHit]:
    """Find checks with a positive weight that an empty text meets."""
    if subject.empty_value is None:
        return
    checked = [one for one in subject.rubric.criteria if one.check is not None]
    values = {one.key: subject.empty_value(one, subject.prompt) for one in checked}
    if any(one.required and one.weight > 0 and _below(values[one.key]) for one in checked):
        return  # a veto: an empty text gets nothing
    for criterion in checked:
        value = values[criterion.key]
        if criterion.weight > 0 and not criterion.required and value is not None and value >= MET:
            yield LintHit(
                criterion, f"the check {criterion.check and criterion.check.name} gives an empty text {value:g}"
            )


def _below(value: float | None) -> bool:
    return value is not None and value < MET
