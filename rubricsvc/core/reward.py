"""Rewards of completions: verdicts aggregated by a named formula.

A formula returns the contribution of each judged criterion, or the reward beside them; ``FORMULAS`` has each by the
name of the system that it comes from. `reward` does the rest: coverage, vetoes, the sum and the clip.
``docs/formulas.md`` documents every name with its source. Several names of one function are systems with the same
arithmetic; scoring a failed judge call as 0, as some of them do, is not reproduced. Weight trees are graded in
PaperBench's order of operations, so that floats are equal.
"""

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial, reduce
from typing import Any, Literal, NamedTuple

from rubricsvc.core.rubric import ROUNDING, Criterion, GroupPath, Numeric, Rubric, on_scale, scale_values
from rubricsvc.core.templates import check_expression
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import cut

Values = dict[str, float]
"""Numbers by criterion key; verdict values hold the judged criteria only, in the rubric's order."""

RawReward = tuple[float, Values]
"""A reward before the clip, and the criteria's contributions, which sum to it up to rounding."""

Compute = Callable[[Rubric, Values], RawReward | Values]


class FormulaError(ValueError):
    """An unknown formula, or one that cannot be applied to this rubric."""


class UndefinedRewardError(FormulaError):
    """A formula without a value for these verdicts, such as a division by zero; other verdicts may have one."""


class Formula(NamedTuple):
    """A formula of ``FORMULAS``.

    ``weighting`` says what a criterion counts in the coverage: its ``absolute`` weight, all ``equal``, or its share of
    the root of a ``tree``. With ``complete``, every criterion must be judged. With ``groups``, the formula uses
    `Rubric.groups`; any other formula rejects rubrics that declare some. Without ``pitfalls``, it rejects negative
    weights.
    """

    name: str
    compute: Compute
    clip: tuple[float, float] | None = None
    weighting: Literal["absolute", "equal", "tree"] = "absolute"
    complete: bool = False
    groups: bool = False
    pitfalls: bool = True

    def weights(self, rubric: Rubric) -> Values:
        """Return the weight of each criterion in the coverage.

        In a tree it is the leaf's share of the root by absolute weight; all are 0 where a weight of 0 cuts off every
        leaf.
        """
        match self.weighting:
            case "absolute":
                return {criterion.key: abs(criterion.weight) for criterion in rubric.criteria}
            case "equal":
                return dict.fromkeys(rubric.by_key, 1.0)
        shares = _tree(rubric)[1]
        return {key: shares[key] for key in rubric.by_key}


def formula_for(rubric: Rubric, name: str) -> Formula:
    """Return the formula called ``name``; raise a FormulaError if there is none that can be applied to the rubric."""
    how = FORMULAS.get(name)
    if how is None:
        raise FormulaError(f"unknown formula {name!r}; expected one of {', '.join(sorted(FORMULAS))}")
    if rubric.groups and not how.groups:
        path = "/".join(rubric.groups[0].path)
        others = " or ".join(sorted(known for known, one in FORMULAS.items() if one.groups))
        message = f"formula {name!r} ignores groups, and the rubric declares group {path!r}"
        raise FormulaError(f"{message}; remove the groups, or use {others}")
    if not how.pitfalls and (pitfall := next((c for c in rubric.criteria if c.weight < 0), None)):
        raise FormulaError(f"{name} takes no negative weights; criterion {pitfall.key!r} has weight {pitfall.weight:g}")
    return how


def _divide(contributions: Values, total: float) -> RawReward:
    """Divide once, after the sum, so that the reward of a completion that meets everything is exactly 1."""
    return math.fsum(contributions.values()) / total, {key: part / total for key, part in contributions.items()}


Divisor = Literal["one", "positive", "floored", "absolute", "signed"]


def weighted(rubric: Rubric, values: Values, over: Divisor, times: float = 1.0) -> RawReward:
    """Compute ``times`` Σ w·v over a sum of the weights of the judged criteria.

    The divisor is ``one`` (a plain sum), the ``positive`` sum Σ_{w>0} w (HealthBench, arXiv 2505.08775), ``floored``:
    max(Σ_{w>0} w, 1) (DR Tulu, arXiv 2511.19399), the ``absolute`` sum Σ|w| (open-instruct), or the ``signed`` sum Σ w
    (Rubrics as Rewards, arXiv 2507.17746). Nothing is clipped, so that it may be negative. With the divisors ``one``
    and ``floored`` all criteria must be judged: a missing one would count as 0.
    """
    weights = [rubric.by_key[key].weight for key in values]
    positive, absolute = math.fsum(weight for weight in weights if weight > 0), math.fsum(map(abs, weights))
    total = math.fsum(weights)
    if over == "positive" and not positive:
        raise FormulaError("weighted_mean and healthbench need a judged criterion with a positive weight")
    if over == "signed" and total <= 1e-9 * absolute:  # a negative divisor would invert the reward
        raise FormulaError(f"the weights of the judged criteria sum to {total:g}; this formula divides by their sum")
    divisors = {"one": 1.0, "positive": positive, "floored": max(positive, 1.0), "absolute": absolute, "signed": total}
    contributions = {key: weight * value for weight, (key, value) in zip(weights, values.items(), strict=True)}
    reward, parts = _divide(contributions, divisors[over])
    return times * reward, {key: times * part for key, part in parts.items()}


def weighted_mean(rubric: Rubric, values: Values) -> RawReward:
    """Compute Σ w·v / Σ_{w>0} w, clipped to [0, 1].

    A rubric of pitfalls only is 1 + Σ w·v / Σ|w|: a completion without any of them gets 1. Where no positive criterion
    was judged, the absence of pitfalls must not become full marks.
    """
    if any(criterion.weight > 0 for criterion in rubric.criteria):
        return weighted(rubric, values, "positive")
    weights = {key: abs(rubric.by_key[key].weight) for key in values}
    return _divide({key: weight * (1.0 - values[key]) for key, weight in weights.items()}, math.fsum(weights.values()))


_DR_TULU_SHARES = {"citation": 0.2, "format": 0.2, "search_turns": 0.1}
"""Weight of each tagged term; the rubric has the rest."""


def dr_tulu_blend(rubric: Rubric, values: Values) -> RawReward:
    """Compute 0.5·rubric + 0.2·citations + 0.2·format + 0.1·search turns, DR Tulu's reward (arXiv 2511.19399).

    The rubric's term is ``dr_tulu``; each other term is one criterion, such as a check, with the tag of that name.
    """
    tagged = [(c, tag) for c in rubric.criteria for tag in c.tags if tag in _DR_TULU_SHARES]
    terms = {c.key: _DR_TULU_SHARES[tag] * values[c.key] for c, tag in tagged}
    rest = {key: value for key, value in values.items() if key not in terms}
    tags = sorted(tag for _, tag in tagged)
    if tags != sorted(_DR_TULU_SHARES) or not rest or len(terms) < len(tags) or any(c.weight < 0 for c, _ in tagged):
        names = ", ".join(map(repr, _DR_TULU_SHARES))
        taken = f"one criterion, without a negative weight, for each of the tags {names}; and others"
        raise FormulaError(f"dr_tulu_blend takes {taken}")
    base, parts = weighted(rubric, rest, "floored")
    halves = {key: 0.5 * part for key, part in parts.items()}
    return math.fsum((0.5 * base, *terms.values())), {key: (halves | terms)[key] for key in values}


_Node = GroupPath | str  # an inner node by its path, or a leaf by its key

_Children = dict[GroupPath, dict[_Node, float]]
"""The children of each inner node with their weights, in the rubric's order."""


def _sum(numbers: Iterable[float]) -> float:
    """Add from left to right; the builtin ``sum`` corrects its rounding from Python 3.12 on, giving other floats."""
    return reduce(operator.add, numbers, 0.0)


@lru_cache(maxsize=16)  # the gain of each leaf grades the same tree again
def _tree(rubric: Rubric) -> tuple[_Children, dict[_Node, float]]:
    """Return the children of each inner node, and each node's share of the root by absolute weight; do not change."""
    weights = {group.path: group.weight for group in rubric.groups}
    children: _Children = {(): {}}
    for leaf in rubric.criteria:
        for depth in range(len(leaf.group)):
            path = leaf.group[: depth + 1]
            children.setdefault(leaf.group[:depth], {})[path] = weights.get(path, 1.0)
        children.setdefault(leaf.group, {})[leaf.key] = leaf.weight
    shares: dict[_Node, float] = {(): 1.0}
    for path in sorted(children, key=len):
        total = _sum(map(abs, children[path].values()))
        for child, weight in children[path].items():
            shares[child] = shares[path] * abs(weight) / total if total else 0.0
    return children, shares


def tree(rubric: Rubric, values: Values) -> RawReward:
    """Compute parent = max(0, Σ w·child / Σ_{w>0} w) from the leaves to the root (PaperBench, arXiv 2504.01848).

    A node's sums run over the children that hold a judged leaf; the root has no floor. With `tree_pitfalls`, a negative
    leaf subtracts within its node, and no further. A node of negative leaves only is 1 + Σ w·v / Σ|w|, one with weights
    of zero only is 0. A node whose positive weights all belong to leaves that were not judged was not judged either.
    Leaves under a node at the floor contribute 0.
    """
    children, shares = _tree(rubric)
    scores: dict[_Node, float] = dict(values.items())
    parts: dict[GroupPath, dict[_Node, float]] = {}
    for path in sorted(children, key=len, reverse=True):
        judged = {child: weight for child, weight in children[path].items() if child in scores}
        if total := _sum(weight for weight in judged.values() if weight > 0):
            scores[path] = _sum(scores[child] * weight for child, weight in judged.items()) / total
            parts[path] = {  # what each leaf adds, and the factor of each inner node's score
                child: weight / total * (scores[child] if isinstance(child, str) else 1.0)
                for child, weight in judged.items()
            }
            if path and scores[path] < 0:
                scores[path], parts[path] = 0.0, {}
        elif max(children[path].values()) <= 0 and (total := _sum(-weight for weight in judged.values())):
            absent = {child: -weight * (1.0 - scores[child]) for child, weight in judged.items()}
            scores[path] = _sum(absent.values()) / total
            parts[path] = {child: part / total for child, part in absent.items()}
        elif judged and path and not any(children[path].values()):
            scores[path], parts[path] = 0.0, {}
    if () not in scores or not any(shares[key] for key in values):
        raise FormulaError("no judged criterion counts: a weight of 0 lies between each of them and the root")
    contributions: dict[_Node, float] = {(): 1.0}
    for path in sorted(parts, key=len):
        for child, part in parts[path].items():
            contributions[child] = contributions.get(path, 0.0) * part
    return scores[()], {key: contributions.get(key, 0.0) for key in values}


Pick = Literal["mean", "tinker", "geometric", "min", "max", "all", "any"]


def unweighted(rubric: Rubric, values: Values, pick: Pick) -> RawReward | Values:
    """Compute a figure of the values alone; weights are not used.

    It is the ``mean`` Σ v / n, that of ``tinker`` (tinker-cookbook), to which each criterion that is tagged ``format``
    adds 0.1·(v − 1) instead, the ``geometric`` mean (Π v)^(1/n), contributed in equal parts, or the ``min`` or
    ``max``, contributed by its criterion. ``all`` and ``any`` are 1 where every or any value is at least 0.99, else 0
    (NeMo Gym, MultiChallenge).
    """
    if pick == "mean":
        return _divide(values, len(values))
    if pick == "tinker":
        penalties = {key: 0.1 * (value - 1.0) for key, value in values.items() if "format" in rubric.by_key[key].tags}
        rest = {key: value for key, value in values.items() if key not in penalties}
        if not rest:
            raise FormulaError("tinker needs a judged criterion that is not tagged 'format'")
        base, parts = _divide(rest, len(rest))
        return base + math.fsum(penalties.values()), parts | penalties
    if pick == "geometric":
        value = math.prod(value ** (1.0 / len(values)) for value in values.values())
        return value, dict.fromkeys(values, value / len(values))
    if pick in ("all", "any"):
        values = {key: float(value >= 0.99) for key, value in values.items()}
    extreme = (min if pick in ("min", "all") else max)(values, key=values.__getitem__)
    return dict.fromkeys(values, 0.0) | {extreme: values[extreme]}


def calculate_output(rubric: Rubric, values: Values) -> RawReward:
    """Evaluate the rubric's expression over its criteria, each a number on its own scale (OpenAI's graders).

    A rubric of one criterion needs no expression. Weights are not used, and nothing is clipped. Contributions are
    equal parts, since an expression need not be a sum.
    """
    numbers = {key: on_scale(rubric.by_key[key].scale, value) for key, value in values.items()}
    if rubric.expression is None and len(rubric.criteria) > 1:
        raise FormulaError("calculate_output over several criteria needs an expression")
    evaluate = check_expression(rubric.expression, numbers) if rubric.expression else None
    try:
        value = evaluate(numbers) if evaluate is not None else sum(numbers.values())
    except (ArithmeticError, ValueError) as error:
        raise UndefinedRewardError(f"{rubric.expression!r} has no value: {error}") from None
    return value, dict.fromkeys(values, value / len(values))


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
"""Systems whose judge gives a completion one number: by the criterion's scale, the range of the reward."""


def rating(rubric: Rubric, values: Values, name: str) -> Values:
    """Return the number of the only criterion on the scale that the system ``name`` has; its weight is not used."""
    scale, ranges = rubric.criteria[0].scale, _RATINGS[name]
    ends = (scale.low, scale.high) if isinstance(scale, Numeric) else scale_values(scale)
    reward_range = ranges.get(ends) if len(rubric.criteria) == 1 else None
    if reward_range is None:
        scales = " or ".join(dict.fromkeys(f"{points[0]:g} to {points[-1]:g}" for points in ranges))
        raise FormulaError(f"{name} takes one criterion, on a scale of {scales}")
    return {key: on_scale(reward_range, value) for key, value in values.items()}


_EQUAL: dict[str, Any] = {"weighting": "equal", "pitfalls": False}
_TABLE: tuple[tuple[str, Compute, dict[str, Any]], ...] = (
    ("weighted_mean ldc autorubric", weighted_mean, {"clip": (0.0, 1.0)}),
    ("healthbench researchrubrics", partial(weighted, over="positive"), {}),
    ("ldc_raw verifiers_legacy", partial(weighted, over="one"), {"complete": True}),
    ("dr_tulu", partial(weighted, over="floored"), {"complete": True}),
    ("dr_tulu_blend", dr_tulu_blend, {"complete": True}),
    ("open_instruct", partial(weighted, over="absolute"), {}),
    ("open_instruct_reward", partial(weighted, over="absolute", times=10.0), {}),  # its verification_reward
    ("rar_explicit rlcf openjudge multichallenge_weighted", partial(weighted, over="signed"), {}),
    ("gandalf", partial(weighted, over="signed"), {"complete": True}),
    ("verifiers", partial(weighted, over="signed"), {"pitfalls": False}),
    ("finance_agent_v2", partial(weighted, over="signed"), {"pitfalls": False, "complete": True}),
    ("tree paperbench race", tree, {"weighting": "tree", "groups": True, "pitfalls": False}),
    ("tree_pitfalls", tree, {"weighting": "tree", "groups": True, "clip": (0.0, 1.0)}),
    ("mean inspect multichallenge_mean", partial(unweighted, pick="mean"), _EQUAL),
    ("tinker", partial(unweighted, pick="tinker"), _EQUAL),
    ("geometric_mean", partial(unweighted, pick="geometric"), _EQUAL),
    ("min multichallenge_min", partial(unweighted, pick="min"), _EQUAL),
    ("max multichallenge_max", partial(unweighted, pick="max"), _EQUAL),
    ("multichallenge_all", partial(unweighted, pick="all"), _EQUAL),
    ("multichallenge_any", partial(unweighted, pick="any"), _EQUAL),
    ("calculate_output", calculate_output, {"weighting": "equal", "complete": True}),
    *((name, partial(rating, name=name), _EQUAL) for name in _RATINGS),
)
FORMULAS = {name: Formula(name, how, **options) for names, how, options in _TABLE for name in names.split()}


@dataclass(frozen=True)
class Reward:
    """The reward of one completion, or why it is null; ``contributions`` are by criterion key, before the clip."""

    value: float | None
    coverage: float
    formula: str
    contributions: Values = field(default_factory=dict)
    vetoed_by: str | None = None
    null_reason: str | None = None


def reward(
    rubric: Rubric, verdicts: Iterable[Verdict], formula: str | None = None, *, min_coverage: float | None = None
) -> Reward:
    """Return the reward of one completion.

    The value is None where the judged share is under ``min_coverage``, where a required criterion was not judged, and
    where any was not judged and the formula needs all. A required criterion that fails lowers the value to 0 if it is
    higher. ``formula`` and ``min_coverage`` are used instead of the rubric's own.

    Raises:
        FormulaError: The formula is unknown, or cannot be applied to this rubric.
        ValueError: A verdict is on a criterion that the rubric does not have, or two are on the same one.
    """
    how = formula_for(rubric, formula or rubric.formula)
    by_key: dict[str, Verdict] = {}
    for verdict in verdicts:
        if verdict.criterion not in rubric.by_key:
            raise ValueError(f"verdict on {verdict.criterion!r}, which is not a criterion of this rubric")
        if verdict.criterion in by_key:
            raise ValueError(f"two verdicts on {verdict.criterion!r}; aggregate samples into one first")
        by_key[verdict.criterion] = verdict
    values = {key: by_key[key].value for key in rubric.by_key if key in by_key}
    judged: Values = {key: value for key, value in values.items() if value is not None}
    covered = 1.0
    if len(judged) < len(rubric.criteria):  # a failed or abstained criterion is not judged
        weights = how.weights(rubric)
        total = math.fsum(weights.values())
        covered = math.fsum(weights[key] for key in judged) / total if total else 0.0
    least = rubric.min_coverage if min_coverage is None else min_coverage
    why = _null_reason(rubric, by_key, covered, how, least)
    if why is not None:
        return Reward(None, covered, how.name, null_reason=why)
    value, contributions = raw_reward(rubric, judged, how)
    veto = next((c.key for c in rubric.criteria if c.required and (judged[c.key] >= 0.5) == (c.weight < 0)), None)
    if veto is not None:
        value = min(value, 0.0)
    if how.clip is not None:
        value = min(max(value, how.clip[0]), how.clip[1])
    return Reward(value, covered, how.name, contributions, vetoed_by=veto)


def raw_reward(rubric: Rubric, judged: Values, how: Formula) -> RawReward:
    """Return the reward of these values before the veto and the clip; a FormulaError if the formula has none."""
    raw = how.compute(rubric, judged)
    value, contributions = (math.fsum(raw.values()), raw) if isinstance(raw, dict) else raw
    if not math.isfinite(value):
        raise FormulaError("the weights are too far apart: the reward is not finite")
    return value, contributions


def _null_reason(rubric: Rubric, by_key: Mapping[str, Verdict], share: float, how: Formula, least: float) -> str | None:
    """Return why there is no reward, with the causes counted: ``coverage 0.86 < 1: unavailable ×7, no_answer ×1``."""
    causes = {
        key: str(by_key[key].reason or by_key[key].outcome) if key in by_key else "no verdict"
        for key in rubric.by_key
        if key not in by_key or by_key[key].value is None
    }
    if not causes:
        return None
    counted = ", ".join(f"{cause} ×{count}" for cause, count in Counter(causes.values()).most_common())
    required = next((key for key in causes if rubric.by_key[key].required), None)
    if required is not None:
        return f"required criterion {cut(repr(required), 80)} was not judged: {causes[required]}"
    if len(causes) == len(rubric.criteria) or share <= 0.0:
        return f"nothing that counts was judged: {counted}"
    if share < least - 1e-12:
        return f"coverage {math.floor(share * 1000) / 1000:g} < {least:g}: {counted}"
    first = cut(repr(next(iter(causes))), 80)
    return f"{how.name} needs all criteria, and {first} was not judged: {counted}" if how.complete else None


def check_formula(rubric: Rubric) -> None:
    """Raise a FormulaError unless the rubric's formula is known and can be applied to it."""
    how = formula_for(rubric, rubric.formula)
    with suppress(UndefinedRewardError):  # other verdicts may have a value
        raw_reward(rubric, dict.fromkeys(rubric.by_key, 1.0), how)


def example_reward_errors(rubric: Rubric) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield path and message of each example whose reward the rubric can give to no completion."""
    rewards = {n: one.reward for n, one in enumerate(rubric.examples or ()) if one.reward is not None}
    if not rewards or rubric.expression is not None:  # what an expression may give is not known
        return
    best = {criterion.key: float(criterion.weight > 0) for criterion in rubric.criteria}
    worst = {key: 1.0 - value for key, value in best.items()}
    possible: list[float] = []
    for values in (best, worst, dict.fromkeys(best, 0.0), dict.fromkeys(best, 1.0)):
        with suppress(FormulaError):
            value = reward(rubric, [Verdict.scored(key, one) for key, one in values.items()]).value
            possible += [value] if value is not None else []
    for number, expected in rewards.items() if possible else ():
        least, most, low, high = min(possible), max(possible), expected.min, expected.max
        if (low is not None and low > most + ROUNDING) or (high is not None and high < least - ROUNDING):
            message = f"this rubric gives rewards from {least:g} to {most:g}, expected {expected}"
            yield ("examples", number, "reward"), message


def reward_or_null(rubric: Rubric, verdicts: Iterable[Verdict], *, min_coverage: float | None = None) -> Reward:
    """Return the reward, without a value where `reward` would raise a FormulaError.

    For rubrics that were checked before: failures may leave a part that the formula does not allow.
    """
    verdicts = list(verdicts)
    try:
        return reward(rubric, verdicts, min_coverage=min_coverage)
    except FormulaError as error:
        judged = math.fsum(abs(rubric.by_key[one.criterion].weight) for one in verdicts if one.value is not None)
        total = math.fsum(abs(criterion.weight) for criterion in rubric.criteria)
        return Reward(None, judged / total, rubric.formula, null_reason=str(error))


class Contribution(NamedTuple):
    """One criterion's part in the reward of a completion, before the veto and the clip.

    ``contribution`` is what it added, and ``gain``, at least 0, how much higher the reward would be if the value of
    this criterion alone were the best on its scale; both are None without a reward, or if it was not judged. ``vetoes``
    is whether it is the required criterion that took the reward down to 0.
    """

    criterion: Criterion
    verdict: Verdict | None
    contribution: float | None = None
    gain: float | None = None
    vetoes: bool = False


def contributions(
    rubric: Rubric, verdicts: Iterable[Verdict], *, min_coverage: float | None = None
) -> list[Contribution]:
    """Return the part of each criterion in the reward, in the rubric's order; ``min_coverage`` as of `reward`.

    The gain is computed with the formula itself, so it is exact for all formulas. For a weighted mean it is
    weight · (1 - value) / sum of the positive weights, for a pitfall |weight| · value / sum, and the gains add up to
    what the reward lacks. With ``min``, two criteria that are equally low have a gain of 0 each.
    """
    verdicts = list(verdicts)
    by_key = {verdict.criterion: verdict for verdict in verdicts}
    result = reward_or_null(rubric, verdicts, min_coverage=min_coverage)
    if result.value is None:
        return [Contribution(criterion, by_key.get(criterion.key)) for criterion in rubric.criteria]
    judged = {key: by_key[key].value for key in rubric.by_key if key in by_key}
    values: Values = {key: value for key, value in judged.items() if value is not None}
    how = formula_for(rubric, rubric.formula)
    now, _ = raw_reward(rubric, values, how)
    parts = []
    for criterion in rubric.criteria:
        key, gain = criterion.key, None
        if key in values:
            levels, best = scale_values(criterion.scale) or (0.0, 1.0), now
            for value in {levels[0], levels[-1]} - {values[key]}:
                with suppress(FormulaError):  # such as a division by zero in an expression
                    best = max(best, raw_reward(rubric, values | {key: value}, how)[0])
            gain = best - now
        added, vetoes = result.contributions.get(key), key == result.vetoed_by
        parts.append(Contribution(criterion, by_key.get(key), added, gain, vetoes))
    return parts
