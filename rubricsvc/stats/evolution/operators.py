"""Operators that need no model: new weights, fewer criteria, another formula, threshold or template.

Only ``template`` needs new verdicts. Weights keep their signs, so that a pitfall stays one. To add an operator, write a
function (random, parent, material) that returns a candidate or None, and name it in `OPERATORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import ValidationError

from rubricsvc.core.evolution import Candidate, Operator
from rubricsvc.core.formulas import FORMULAS, FormulaError
from rubricsvc.core.reward import check_formula
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.stats.intervals import Floats

DIGITS = 4
"""Significant digits of a weight."""
FORMULA_CHOICES = ("weighted_mean", "healthbench", "open_instruct", "rar_explicit", "mean", "geometric_mean", "min")
THRESHOLDS = (None, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
FACTORS = (0.25, 0.5, 2.0, 4.0)
MIN_CRITERIA = 2

Fit = Callable[[np.random.Generator, Candidate], Floats | None]
"""Returns weights [C] of a candidate that are fitted on a part of the search part, or None."""


@dataclass(frozen=True)
class Material:
    """What operators may use: the start, another parent of the population, templates, and a fit of weights."""

    start: Candidate
    other: Candidate
    templates: Sequence[str]
    fit: Fit


Mutation = Callable[[np.random.Generator, Candidate, Material], Candidate | None]


def mutate(operator: Operator, random: np.random.Generator, parent: Candidate, material: Material) -> Candidate | None:
    """Return a child; None where the operator has nothing to change, or the result is no rubric."""
    try:
        child = OPERATORS[operator](random, parent, material)
        if child is None:
            return None
        check_formula(child.rubric)
    except (ValidationError, FormulaError):
        return None
    return child


def with_criteria(parent: Candidate, criteria: Sequence[Criterion], **changes: object) -> Candidate:
    """Return the candidate with other criteria (and other fields of its rubric), validated."""
    changed = parent.rubric.with_criteria(criteria).model_copy(update=changes)
    return parent.model_copy(update={"rubric": Rubric.model_validate(changed.model_dump())})


def _weighted(parent: Candidate, weights: Floats) -> Candidate:
    rounded = [float(f"{weight:.{DIGITS}g}") for weight in weights.tolist()]
    criteria = [
        one.model_copy(update={"weight": weight}) for one, weight in zip(parent.rubric.criteria, rounded, strict=True)
    ]
    return with_criteria(parent, criteria)


def _weights(parent: Candidate) -> Floats:
    return np.array([one.weight for one in parent.rubric.criteria])


def _jitter(random: np.random.Generator, parent: Candidate, _: Material) -> Candidate:
    """Multiply one to three weights by random factors."""
    weights = _weights(parent)
    places = random.choice(len(weights), min(len(weights), int(random.integers(1, 4))), replace=False)
    weights[places] *= np.exp(random.normal(0.0, 0.5, len(places)))
    return _weighted(parent, weights)


def _scale(random: np.random.Generator, parent: Candidate, _: Material) -> Candidate | None:
    """Multiply all pitfalls, all checks, or one criterion by one factor."""
    criteria = parent.rubric.criteria
    pitfalls = np.array([one.weight < 0 for one in criteria])
    checks = np.array([one.check is not None for one in criteria])
    single = np.arange(len(criteria)) == random.integers(len(criteria))
    sets = [one for one in (pitfalls, checks, single) if 0 < one.sum() < len(criteria)]
    if not sets:
        return None
    chosen = sets[int(random.integers(len(sets)))]
    factor = FACTORS[int(random.integers(len(FACTORS)))]
    return _weighted(parent, np.where(chosen, _weights(parent) * factor, _weights(parent)))


def _fit(random: np.random.Generator, parent: Candidate, material: Material) -> Candidate | None:
    """Take weights that are fitted to people's labels on half of the search part."""
    fitted = material.fit(random, parent)
    return None if fitted is None else _weighted(parent, fitted)


def _drop(random: np.random.Generator, parent: Candidate, _: Material) -> Candidate | None:
    """Leave one criterion out."""
    criteria = parent.rubric.criteria
    if len(criteria) <= MIN_CRITERIA:
        return None
    left_out = int(random.integers(len(criteria)))
    kept = [one for place, one in enumerate(criteria) if place != left_out]
    return with_criteria(parent, kept) if any(one.weight > 0 for one in kept) else None


def _restore(random: np.random.Generator, parent: Candidate, material: Material) -> Candidate | None:
    """Take a criterion of the start back."""
    keys = parent.rubric.by_key
    missing = [one for one in material.start.rubric.criteria if one.key not in keys]
    if not missing:
        return None
    back = missing[int(random.integers(len(missing)))]
    wanted = {one.key: place for place, one in enumerate(material.start.rubric.criteria)}
    criteria = sorted([*parent.rubric.criteria, back], key=lambda one: wanted.get(one.key, len(wanted)))
    return with_criteria(parent, criteria)


def _cross(random: np.random.Generator, parent: Candidate, material: Material) -> Candidate | None:
    """Take each criterion of the parent, or that of the same key of the other parent, and some that only it has."""
    other = material.other.rubric.by_key
    if material.other.template != parent.template or parent.rubric == material.other.rubric:
        return None
    criteria = []
    for one in parent.rubric.criteria:
        theirs = other.get(one.key)
        criteria.append(theirs if theirs is not None and random.random() < 0.5 else one)
    own = parent.rubric.by_key
    criteria += [one for one in other.values() if one.key not in own and random.random() < 0.5]
    return with_criteria(parent, criteria)


def _formula(random: np.random.Generator, parent: Candidate, _: Material) -> Candidate | None:
    """Choose another formula."""
    choices = [name for name in FORMULA_CHOICES if name != parent.rubric.formula and name in FORMULAS]
    formula = choices[int(random.integers(len(choices)))]
    return with_criteria(parent, parent.rubric.criteria, formula=formula)


def _threshold(random: np.random.Generator, parent: Candidate, _: Material) -> Candidate:
    """Choose another threshold of the readout's probability."""
    choices = [one for one in THRESHOLDS if one != parent.threshold]
    return parent.model_copy(update={"threshold": choices[int(random.integers(len(choices)))]})


def _template(random: np.random.Generator, parent: Candidate, material: Material) -> Candidate | None:
    """Choose another prompt template of the judge."""
    choices = [one for one in (None, *material.templates) if one != parent.template]
    return parent.model_copy(update={"template": choices[int(random.integers(len(choices)))]}) if choices else None


OPERATORS: Mapping[Operator, Mutation] = {
    "jitter": _jitter,
    "scale": _scale,
    "fit": _fit,
    "drop": _drop,
    "restore": _restore,
    "cross": _cross,
    "formula": _formula,
    "threshold": _threshold,
    "template": _template,
}
