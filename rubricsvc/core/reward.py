"""Rewards of completions: verdicts aggregated by a named formula from `formulas`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from rubricsvc.core.formulas import Formula, FormulaError, RawReward, UndefinedRewardError, Values, formula_for
from rubricsvc.core.rubric import ROUNDING, Criterion, Rubric, scale_values
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import cut


@dataclass(frozen=True)
class Reward:
    """The reward of one completion.

    ``value`` is None where too little was judged; ``null_reason`` then gives the reason. ``contributions`` are by
    criterion key, before the clip.
    """

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
    """Return the reward of these values before the veto and the clip.

    Raises:
        FormulaError: The formula has no value for them.
    """
    raw = how.compute(rubric, judged)
    value, contributions = (math.fsum(raw.values()), raw) if isinstance(raw, dict) else raw
    if not math.isfinite(value):
        raise FormulaError("the weights are too far apart: the reward is not finite")
    return value, contributions


def _null_reason(
    rubric: Rubric, by_key: Mapping[str, Verdict], covered: float, how: Formula, least: float
) -> str | None:
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
    if len(causes) == len(rubric.criteria) or covered <= 0.0:
        return f"nothing that counts was judged: {counted}"
    if covered < least - 1e-12:
        return f"coverage {math.floor(covered * 1000) / 1000:g} < {least:g}: {counted}"
    first = cut(repr(next(iter(causes))), 80)
    return f"{how.name} needs all criteria, and {first} was not judged: {counted}" if how.complete else None


def check_formula(rubric: Rubric) -> None:
    """Raise a FormulaError unless the rubric's formula is known and can be applied to it."""
    with suppress(UndefinedRewardError):  # other verdicts may have a value
        reward(rubric, [Verdict.scored(criterion.key, 1.0) for criterion in rubric.criteria])


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
    parts = []
    for criterion in rubric.criteria:
        key, gain = criterion.key, None
        if key in values:
            levels, best = scale_values(criterion.scale) or (0.0, 1.0), now
            for value in {levels[0], levels[-1]} - {values[key]}:
                with suppress(FormulaError):  # such as a division by zero in an expression
                    best = max(best, raw_reward(rubric, values | {key: value}, how)[0])
            gain = best - now
        parts.append(
            Contribution(
                criterion, by_key.get(key), result.contributions.get(key), gain, vetoes=key == result.vetoed_by
            )
        )
    return parts
