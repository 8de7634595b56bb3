"""The formulas that fold verdicts into a reward, each under the name of the system that it comes from.

To add one, write a function that gives each judged criterion its contribution, and name it::

    @formula("mean")
    def mean(rubric: Rubric, values: Values) -> Values:
        return {key: value / len(values) for key, value in values.items()}

``reward`` does the rest: coverage, veto, the sum and the clip. `docs/formulas.md` has a line for each name, with its
source. Several names on one function are systems that do the same arithmetic; none of their ways to score a failed
judge call is taken over.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rubricsvc.core import expressions
from rubricsvc.core.rubric import Numeric, Ordinal, Rubric, Scale, on_scale
from rubricsvc.core.tree import ZeroError, grade

Values = dict[str, float]
"""Criterion key to a number; of the criteria that were judged, in the rubric's order."""


@dataclass(frozen=True)
class Folded:
    """An unclipped reward, and the criteria's contributions to it: they sum to it, but for rounding."""

    value: float
    parts: Values


Fold = Callable[[Rubric, Values], Folded | Values]
FoldT = TypeVar("FoldT", bound=Fold)
Weights = Callable[[Rubric], Values]


class FormulaError(ValueError):
    """The formula is unknown, or cannot be applied to this rubric."""


class UndefinedError(FormulaError):
    """The formula has no value for these verdicts, and may have one for others: it divides by zero, say."""


def absolute(rubric: Rubric) -> Values:
    return {criterion.key: abs(criterion.weight) for criterion in rubric.criteria}


def alike(rubric: Rubric) -> Values:
    return dict.fromkeys(rubric.by_key, 1.0)


def shares(rubric: Rubric) -> Values:
    """Each leaf's share of the root."""
    return _tree(rubric, alike(rubric)).parts


@dataclass(frozen=True)
class Formula:
    """``weights`` is what each criterion counts in the coverage; ``complete`` is that all of them must be judged."""

    name: str
    fold: Fold
    clip: tuple[float, float] | None
    weights: Weights
    complete: bool


FORMULAS: dict[str, Formula] = {}


def formula(
    *names: str,
    clip: tuple[float, float] | None = None,
    weights: Weights = absolute,
    complete: bool = False,
) -> Callable[[FoldT], FoldT]:
    """Register the decorated function under ``names``; the reward is clipped to ``clip`` where given."""

    def register(function: FoldT) -> FoldT:
        for name in names:
            FORMULAS[name] = Formula(name, function, clip, weights, complete)
        return function

    return register


def named(name: str) -> Formula:
    """The formula of this name.

    Raises:
        FormulaError: there is none; the message lists those that there are.
    """
    if name not in FORMULAS:
        raise FormulaError(f"unknown formula {name!r}; there are {', '.join(sorted(FORMULAS))}")
    return FORMULAS[name]


def _weighted(rubric: Rubric, values: Values) -> Values:
    return {key: rubric.by_key[key].weight * value for key, value in values.items()}


def _over(parts: Values, whole: float) -> Folded:
    """Divided once, after the sum: all criteria met is 1, and not a rounding away from it."""
    return Folded(math.fsum(parts.values()) / whole, {key: part / whole for key, part in parts.items()})


def _times(factor: float, folded: Folded) -> Folded:
    return Folded(factor * folded.value, {key: factor * part for key, part in folded.parts.items()})


def _merits(rubric: Rubric, values: Values) -> float:
    return math.fsum(rubric.by_key[key].weight for key in values if rubric.by_key[key].weight > 0)


def _refuse_faults(rubric: Rubric, name: str) -> None:
    negative = next((criterion.key for criterion in rubric.criteria if criterion.weight < 0), None)
    if negative is not None:
        raise FormulaError(f"{name} takes no negative weights; criterion {negative!r} has one")


@formula("weighted_mean", "ldc", "autorubric", clip=(0.0, 1.0))
def weighted_mean(rubric: Rubric, values: Values) -> Folded:
    """Σ w·v / Σ_{w>0} w, clipped to [0, 1].

    A rubric of faults only is 1 + Σ w·v / Σ|w|: a completion without faults is worth 1.
    """
    if merits := _merits(rubric, values):
        return _over(_weighted(rubric, values), merits)
    if any(criterion.weight > 0 for criterion in rubric.criteria):
        # all merits failed to be judged: that the faults are absent must not become full marks
        raise FormulaError("weighted_mean needs a judged criterion with a positive weight")
    weights = {key: abs(rubric.by_key[key].weight) for key in values}
    return _over({key: weight * (1.0 - values[key]) for key, weight in weights.items()}, math.fsum(weights.values()))


@formula("ldc_raw", "verifiers_legacy", complete=True)
def weighted_sum(rubric: Rubric, values: Values) -> Values:
    """Σ w·v. All must be judged: in a bare sum, what is missing would count as 0."""
    return _weighted(rubric, values)


@formula("healthbench", "researchrubrics")
def healthbench(rubric: Rubric, values: Values) -> Folded:
    """Σ w·v / Σ_{w>0} w, per sample not clipped, so that it may be negative (HealthBench, arXiv 2505.08775)."""
    merits = _merits(rubric, values)
    if not merits:
        raise FormulaError("healthbench needs a judged criterion with a positive weight")
    return _over(_weighted(rubric, values), merits)


@formula("dr_tulu", complete=True)
def dr_tulu(rubric: Rubric, values: Values) -> Folded:
    """Σ w·v / max(Σ_{w>0} w, 1) (DR Tulu, arXiv 2511.19399). All must be judged: over the floor of 1, what is missing
    would count as 0."""
    return _over(_weighted(rubric, values), max(_merits(rubric, values), 1.0))


_DR_TULU = {"citation": 0.2, "format": 0.2, "search_turns": 0.1}
"""Beside the rubric, which has the rest."""


@formula("dr_tulu_blend", complete=True)
def dr_tulu_blend(rubric: Rubric, values: Values) -> Folded:
    """0.5·rubric + 0.2·citations + 0.2·format + 0.1·search turns, what DR Tulu trains on (arXiv 2511.19399).

    The rubric's part is ``dr_tulu``; the others are criteria (checks, say) with the tag of that name, one each.
    """
    tags = {c.key: tag for c in rubric.criteria for tag in c.tags if tag in _DR_TULU}
    rest = {key: value for key, value in values.items() if key not in tags}
    if sorted(tags.values()) != sorted(_DR_TULU) or min(rubric.by_key[key].weight for key in tags) < 0 or not rest:
        wanted = ", ".join(map(repr, _DR_TULU))
        raise FormulaError(f"dr_tulu_blend takes one criterion, no fault, for each of the tags {wanted}; and others")
    rubrics = _times(0.5, dr_tulu(rubric, rest))
    terms = {key: _DR_TULU[tag] * values[key] for key, tag in tags.items()}
    return Folded(math.fsum((rubrics.value, *terms.values())), {key: (rubrics.parts | terms)[key] for key in values})


@formula("open_instruct")
def open_instruct(rubric: Rubric, values: Values) -> Folded:
    """Σ w·v / Σ|w|."""
    return _over(_weighted(rubric, values), math.fsum(abs(rubric.by_key[key].weight) for key in values))


@formula("open_instruct_reward")
def open_instruct_reward(rubric: Rubric, values: Values) -> Folded:
    """As ``open_instruct``, times its ``verification_reward`` of 10."""
    return _times(10.0, open_instruct(rubric, values))


@formula("rar_explicit", "rlcf", "openjudge", "multichallenge_weighted")
@formula("gandalf", complete=True)
def signed_mean(rubric: Rubric, values: Values) -> Folded:
    """Σ w·v / Σ w, with the weights' signs below as above (Rubrics as Rewards, arXiv 2507.17746)."""
    weights = [rubric.by_key[key].weight for key in values]
    total = math.fsum(weights)
    if total <= 1e-9 * math.fsum(map(abs, weights)):  # faults that outweigh the merits would turn the reward round
        raise FormulaError("the judged weights sum to nothing or less; this formula divides by their sum")
    return _over(_weighted(rubric, values), total)


@formula("verifiers")
@formula("finance_agent_v2", complete=True)
def verifiers(rubric: Rubric, values: Values) -> Folded:
    """Σ w·v / Σ w. No negative weights."""
    _refuse_faults(rubric, "this formula")
    return signed_mean(rubric, values)


@formula("tree", "paperbench", "race", weights=shares)
def tree(rubric: Rubric, values: Values) -> Folded:
    """parent = Σ w·child / Σ w, from the leaves to the root (PaperBench, arXiv 2504.01848). No negative weights.

    Where some leaves were not judged, a node's weights are taken over the children that hold a judged leaf.
    """
    return _tree(rubric, values)


def _tree(rubric: Rubric, values: Values) -> Folded:
    _refuse_faults(rubric, "tree")
    try:
        root, share = grade(rubric, values)
    except ZeroError as error:
        raise FormulaError(str(error)) from None
    return Folded(root, {key: share[key] * value for key, value in values.items()})


@formula("mean", "inspect", "multichallenge_mean", weights=alike)
def mean(rubric: Rubric, values: Values) -> Folded:
    """Σ v / n; the weights are not used."""
    _refuse_faults(rubric, "mean")
    return _over(values, len(values))


@formula("tinker", weights=alike)
def tinker(rubric: Rubric, values: Values) -> Folded:
    """The mean of the criteria, + 0.1·(v − 1) for each that is tagged ``format`` (tinker-cookbook)."""
    _refuse_faults(rubric, "tinker")
    form = {key: 0.1 * (value - 1.0) for key, value in values.items() if "format" in rubric.by_key[key].tags}
    rest = {key: value for key, value in values.items() if key not in form}
    if not rest:
        raise FormulaError("tinker needs a judged criterion that is not tagged 'format'")
    judged = _over(rest, len(rest))
    return Folded(judged.value + math.fsum(form.values()), judged.parts | form)


@formula("geometric_mean", weights=alike)
def geometric_mean(rubric: Rubric, values: Values) -> Folded:
    """(Π v)^(1/n), in equal parts; the weights are not used."""
    _refuse_faults(rubric, "geometric_mean")
    value = math.prod(value ** (1.0 / len(values)) for value in values.values())
    return Folded(value, dict.fromkeys(values, value / len(values)))


@formula("min", "multichallenge_min", weights=alike)
def lowest(rubric: Rubric, values: Values) -> Folded:
    """The lowest value; the weights are not used. The criterion that has it brings all of it."""
    return _decided_by(min, rubric, values)


@formula("max", "multichallenge_max", weights=alike)
def highest(rubric: Rubric, values: Values) -> Folded:
    """The highest value; the weights are not used. The criterion that has it brings all of it."""
    return _decided_by(max, rubric, values)


_MET = 0.99
"""From here on NeMo Gym's MultiChallenge takes a criterion for met."""


@formula("multichallenge_all", weights=alike)
def every(rubric: Rubric, values: Values) -> Folded:
    """1 where every value is at least 0.99, else 0 (NeMo Gym, MultiChallenge)."""
    return _decided_by(min, rubric, {key: float(value >= _MET) for key, value in values.items()})


@formula("multichallenge_any", weights=alike)
def some(rubric: Rubric, values: Values) -> Folded:
    """1 where any value is at least 0.99, else 0 (NeMo Gym, MultiChallenge)."""
    return _decided_by(max, rubric, {key: float(value >= _MET) for key, value in values.items()})


@formula("calculate_output", weights=alike, complete=True)
def calculate_output(rubric: Rubric, values: Values) -> Folded:
    """The rubric's own expression over its criteria, each a number on its own scale; without one, the only criterion
    (OpenAI's graders). The weights are not used, and nothing is clipped. In equal parts: it need not be a sum."""
    numbers = {key: on_scale(rubric.by_key[key].scale, value) for key, value in values.items()}
    if rubric.expression is None and len(rubric.criteria) > 1:
        raise FormulaError("calculate_output over several criteria needs an expression")
    try:
        value = expressions.evaluate(rubric.expression, numbers) if rubric.expression else sum(numbers.values())
    except expressions.UndefinedError as error:
        raise UndefinedError(str(error)) from None
    return Folded(value, dict.fromkeys(values, value / len(values)))


_UNIT = Numeric(low=0.0, high=1.0)
_FIVE = Numeric(low=1.0, high=5.0)
_RATINGS: dict[str, dict[tuple[float, ...], Numeric]] = {
    "rar_implicit": {(1, 10): _UNIT},
    "ldc_as_judge": {(0, 100): _UNIT},
    "reward_hub": {(0, 10): Numeric(low=0.0, high=10.0), (0, 1): _UNIT},  # pointwise; 1 for the best n of a group
    "prometheus": {(1, 5): _FIVE, (0, 0.25, 0.5, 0.75, 1): _FIVE, (0, 1): _UNIT},  # absolute, in two ways; A or B
    "skyrl": {(0, 1): _UNIT},
    "art": {(0, 1): _UNIT},
}
"""Of systems whose judge gives an answer one number: what its scale may be worth, and what the reward runs over."""


def _rating(name: str, taken: dict[tuple[float, ...], Numeric]) -> None:
    @formula(name, weights=alike)
    def rating(rubric: Rubric, values: Values) -> Values:
        """The one criterion's number. The weight is not used."""
        _refuse_faults(rubric, name)
        over = taken.get(_worth(rubric.criteria[0].scale)) if len(rubric.criteria) == 1 else None
        if over is None:
            scales = " or ".join(dict.fromkeys(f"{worth[0]:g} to {worth[-1]:g}" for worth in taken))
            raise FormulaError(f"{name} takes one criterion, on a scale of {scales}")
        return {key: on_scale(over, value) for key, value in values.items()}


for _name, _taken in _RATINGS.items():
    _rating(_name, _taken)


def _worth(scale: Scale) -> tuple[float, ...]:
    if isinstance(scale, Ordinal):
        return tuple(sorted(level.value for level in scale.levels))
    return (scale.low, scale.high) if isinstance(scale, Numeric) else (0.0, 1.0)


def _decided_by(choose: Callable[..., str], rubric: Rubric, values: Values) -> Folded:
    _refuse_faults(rubric, "this formula")
    key = choose(values, key=values.__getitem__)
    return Folded(values[key], dict.fromkeys(values, 0.0) | {key: values[key]})
