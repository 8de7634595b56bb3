"""What each criterion added to the reward of a completion, and how much more it could add."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rubricsvc.core.formulas import Formula, FormulaError, Values, formula_for
from rubricsvc.core.reward import raw_reward, reward_or_null
from rubricsvc.core.rubric import Criterion, Rubric, scale_values
from rubricsvc.core.verdict import Verdict

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Contribution:
    """One criterion's part in the reward of a completion, before the veto and the clip.

    Attributes:
        verdict: None where the criterion has none.
        contribution: What it added. None without a reward, or if it was not judged.
        gain: How much higher the reward would be if the value of this criterion alone were the best on
            its scale, at least 0. None without a reward, or if it was not judged.
        vetoes: Whether it is the required criterion that took the reward down to 0.
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
    return [
        Contribution(
            criterion,
            by_key.get(criterion.key),
            result.contributions.get(criterion.key),
            _gain(rubric, values, how, criterion, now) if criterion.key in values else None,
            vetoes=criterion.key == result.vetoed_by,
        )
        for criterion in rubric.criteria
    ]


def by_gain(parts: Iterable[Contribution]) -> list[Contribution]:
    """Return the criteria with a gain by falling gain, after the one that vetoes."""
    found = [part for part in parts if part.vetoes or (part.gain or 0.0) > _ROUNDING]
    return sorted(found, key=lambda part: (not part.vetoes, -(part.gain or 0.0)))


def _gain(rubric: Rubric, values: Values, how: Formula, criterion: Criterion, now: float) -> float:
    """Return how much the best end of the criterion's scale would add to the reward ``now``."""
    levels = scale_values(criterion.scale) or (0.0, 1.0)
    best = now
    for value in {levels[0], levels[-1]} - {values[criterion.key]}:
        try:
            best = max(best, raw_reward(rubric, values | {criterion.key: value}, how)[0])
        except FormulaError:  # such as a division by zero in an expression
            continue
    return best - now
