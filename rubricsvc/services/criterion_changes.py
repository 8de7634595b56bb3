"""Which criteria differ between two jobs: verdicts that cross 0.5, and what moved a reward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING

from rubricsvc.core.contributions import contributions
from rubricsvc.core.job_comparison import CriterionChange, CriterionComparison
from rubricsvc.services.pairing import match_criteria, wording
from rubricsvc.store import verdicts

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.rubric import Rubric
    from rubricsvc.services.pairing import RewardedPair, ScoredUnit
    from rubricsvc.stats import OnProgress

MOST_CRITERIA = 3
PAIRS_PER_PAGE = 200


def compare_criteria(
    session: Session,
    pairs: Sequence[RewardedPair],
    rubrics: Mapping[int, Rubric],
    on_progress: OnProgress,
) -> tuple[CriterionComparison, ...]:
    """Return each criterion that both sides have, by falling number of flips."""
    match = cache(lambda a, b: match_criteria(rubrics[a], rubrics[b]))
    found: defaultdict[tuple[str, str, str, bool], list[tuple[float, float]]] = defaultdict(list)
    for start in range(0, len(pairs), PAIRS_PER_PAGE):
        page = pairs[start : start + PAIRS_PER_PAGE]
        ids = (item.id for pair in page for one in pair.sides for item in one.items)
        values = verdicts.values_for_items(session, ids)
        for pair in page:
            for a, b in match(pair.a.rubric_id, pair.b.rubric_id):
                one, other = (_mean_value(side, key, values) for side, key in ((pair.a, a.key), (pair.b, b.key)))
                if one is not None and other is not None:
                    found[pair.b.rubric, a.key, b.key, wording(a) != wording(b)].append((one, other))
        on_progress(start + len(page), len(pairs), "")
    rows = [_criterion(*name, values) for name, values in found.items()]
    return tuple(sorted(rows, key=lambda row: (-row.flips, -abs(row.mean_b - row.mean_a))))


def _mean_value(one: ScoredUnit, key: str, values: Mapping[int, Mapping[str, float]]) -> float | None:
    known = [values[item.id][key] for item in one.items if key in values.get(item.id, ())]
    return fmean(known) if known else None


def _criterion(
    rubric: str, key_a: str, key_b: str, reworded: bool, values: Sequence[tuple[float, float]]
) -> CriterionComparison:
    met = [(one >= 0.5, other >= 0.5) for one, other in values]
    return CriterionComparison(
        rubric=rubric,
        key_a=key_a,
        key_b=key_b,
        reworded=reworded,
        paired=len(met),
        mean_a=fmean(one for one, _ in values),
        mean_b=fmean(other for _, other in values),
        to_met=met.count((False, True)),
        to_unmet=met.count((True, False)),
    )


def largest_changes(
    session: Session,
    pair: RewardedPair,
    rubrics: Mapping[int, Rubric],
    min_coverage: tuple[float | None, float | None],
) -> tuple[CriterionChange, ...]:
    """Return the criteria whose contributions differ most; one of a single side counts as a whole.

    ``min_coverage`` is that of each job, used instead of the rubrics' own.
    """
    before, after = (
        _contributions(session, one, rubrics[one.rubric_id], least)
        for one, least in zip(pair.sides, min_coverage, strict=True)
    )
    renamed = {b.key: a.key for a, b in match_criteria(*(rubrics[one.rubric_id] for one in pair.sides))}
    changes = {key: value - before.pop(renamed.get(key, ""), 0.0) for key, value in after.items()}
    for key, value in before.items():
        changes[key] = changes.get(key, 0.0) - value
    largest = sorted(changes.items(), key=lambda change: -abs(change[1]))[:MOST_CRITERIA]
    return tuple(
        CriterionChange(criterion=key, change=round(value, 12)) for key, value in largest if abs(value) > 1e-12
    )


def _contributions(session: Session, one: ScoredUnit, rubric: Rubric, min_coverage: float | None) -> dict[str, float]:
    """Return the contribution of each criterion, as the mean over the completions with a reward."""
    ids = [item.id for item in one.items if item.reward is not None]
    by_item = verdicts.for_items(session, ids)
    sums: defaultdict[str, float] = defaultdict(float)
    for id_ in ids:
        for part in contributions(rubric, by_item.get(id_, ()), min_coverage=min_coverage):
            sums[part.criterion.key] += part.contribution or 0.0
    return {key: value / len(ids) for key, value in sums.items()}
