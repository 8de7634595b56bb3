"""Verdicts folded into a reward, by a named formula. The formulas stand in `formulas`, where one more is five lines."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from rubricsvc.core.formulas import (
    FORMULAS,
    Folded,
    Formula,
    FormulaError,
    UndefinedError,
    Values,
    absolute,
    formula,
    named,
)
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict

__all__ = [
    "FORMULAS",
    "FormulaError",
    "Reward",
    "Values",
    "check_formula",
    "coverage",
    "fold",
    "formula",
    "healthbench_overall",
    "race_overall",
    "reward",
]


@dataclass(frozen=True)
class Reward:
    """``value`` is None when too little was judged. ``parts`` are the criteria's contributions, before the clip."""

    value: float | None
    coverage: float
    formula: str
    parts: Values = field(default_factory=dict)
    vetoed_by: str | None = None
    null_reason: str | None = None


def coverage(rubric: Rubric, judged: Iterable[str], formula: str | None = None) -> float:
    """The judged share of the rubric, in [0, 1]. A criterion that failed or was abstained on is not judged.

    A criterion counts with its absolute weight; in a tree, where weights of different nodes are not comparable, with
    its share of the root; and where the formula does not use the weights, all count alike.

    Raises:
        FormulaError: unknown formula, or one that does not allow this rubric.
    """
    weight = named(formula or rubric.formula).weights(rubric)
    keys = set(judged)
    if len(keys) == len(weight):
        return 1.0
    return math.fsum(weight[key] for key in keys) / math.fsum(weight.values())


def reward(rubric: Rubric, verdicts: Iterable[Verdict], formula: str | None = None) -> Reward:
    """Fold ``verdicts`` by ``formula`` (default: the rubric's own).

    The value is None when the judged share is under ``rubric.min_coverage``, when a required criterion was not judged,
    or when any was not and the formula wants them all. A required criterion that is not held takes the value down to 0
    (or leaves it, if lower).

    Raises:
        FormulaError: unknown formula, or one that this rubric does not allow.
        ValueError: a verdict on a criterion that the rubric does not have, or two on the same one.
    """
    how = named(formula or rubric.formula)
    found = _by_criterion(rubric, verdicts)
    values = {key: found[key].value for key in rubric.by_key if key in found}
    judged: Values = {key: value for key, value in values.items() if value is not None}
    covered = coverage(rubric, judged, how.name)
    why = _null_reason(rubric, judged, covered, how)
    if why is not None:
        return Reward(None, covered, how.name, null_reason=why)
    folded = how.fold(rubric, judged)
    if not isinstance(folded, Folded):
        folded = Folded(math.fsum(folded.values()), folded)
    if not math.isfinite(folded.value):
        raise FormulaError("the weights are too far apart: the reward is not finite")
    veto = next((c.key for c in rubric.criteria if c.required and (judged[c.key] >= 0.5) == (c.weight < 0)), None)
    value = folded.value if veto is None else min(folded.value, 0.0)
    if how.clip is not None:
        value = min(max(value, how.clip[0]), how.clip[1])
    return Reward(value, covered, how.name, folded.parts, vetoed_by=veto)


def _null_reason(rubric: Rubric, judged: Values, covered: float, how: Formula) -> str | None:
    missing = [criterion for criterion in rubric.criteria if criterion.key not in judged]
    required = next((criterion.key for criterion in missing if criterion.required), None)
    if required is not None:
        return f"required criterion {required!r} was not judged"
    if not judged or covered <= 0.0 or covered < rubric.min_coverage - 1e-12:
        return f"judged share {covered:.3f} is under min_coverage {rubric.min_coverage:g}"
    if missing and how.complete:
        return f"{how.name} takes all criteria or none, and {missing[0].key!r} was not judged"
    return None


def check_formula(rubric: Rubric) -> None:
    """See that the rubric's formula is known, and allows its weights.

    Raises:
        FormulaError: it is not, or does not.
    """
    with suppress(UndefinedError):  # for these verdicts; others may do
        reward(rubric, [Verdict.scored(criterion.key, 1.0) for criterion in rubric.criteria])


def race_overall(target: Reward, reference: Reward) -> Reward:
    """RACE's overall score: target / (target + reference), of two completions by one rubric (arXiv 2506.11763).

    0.5 is a draw. It is None where one of the two is, and where both are 0.

    Raises:
        FormulaError: one of them is negative.
    """
    covered = min(target.coverage, reference.coverage)
    if target.value is None or reference.value is None:
        return Reward(None, covered, "race_overall", null_reason=target.null_reason or reference.null_reason)
    if min(target.value, reference.value) < 0:
        raise FormulaError(f"race_overall compares rewards of 0 and more, and got {target.value} and {reference.value}")
    both = target.value + reference.value
    if not both:
        return Reward(None, covered, "race_overall", null_reason="target and reference are both worth 0")
    parts = {key: part / both for key, part in target.parts.items()}
    return Reward(target.value / both, covered, "race_overall", parts, vetoed_by=target.vetoed_by)


def healthbench_overall(samples: Iterable[Reward]) -> Reward:
    """HealthBench's score of a model: the mean over its samples, and only that is clipped to [0, 1] (arXiv 2505.08775).

    Samples without a reward are left out; ``coverage`` is the share of the others. It is None where there is none.
    """
    found = list(samples)
    known = [sample.value for sample in found if sample.value is not None]
    covered = len(known) / max(len(found), 1)
    if not known:
        return Reward(None, covered, "healthbench_overall", null_reason="no sample has a reward")
    return Reward(min(max(math.fsum(known) / len(known), 0.0), 1.0), covered, "healthbench_overall")


def fold(rubric: Rubric, verdicts: Iterable[Verdict]) -> Reward:
    """``reward`` for rubrics that were checked before: where failures left a part that the formula does not allow (no
    positive weight, say), there is no reward, and no error."""
    found = list(verdicts)
    try:
        return reward(rubric, found)
    except FormulaError as error:
        weight = absolute(rubric)
        judged = math.fsum(weight[verdict.criterion] for verdict in found if verdict.value is not None)
        return Reward(None, judged / math.fsum(weight.values()), rubric.formula, null_reason=str(error))


def _by_criterion(rubric: Rubric, verdicts: Iterable[Verdict]) -> dict[str, Verdict]:
    found: dict[str, Verdict] = {}
    for verdict in verdicts:
        if verdict.criterion not in rubric.by_key:
            raise ValueError(f"verdict on {verdict.criterion!r}, which is no criterion of this rubric")
        if verdict.criterion in found:
            raise ValueError(f"two verdicts on {verdict.criterion!r}; fold samples into one first")
        found[verdict.criterion] = verdict
    return found
