from __future__ import annotations

import numpy as np

from rubricsvc.core.evolution import BufferedCriterion, evolved_rubric
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.stats.evolution import agreement, held_out_result, measured, selected
from rubricsvc.stats.paired import differences, ordered


def entry(key: str, state: str = "proposed", weight: float = 1.0, **fields: object) -> BufferedCriterion:
    criterion = Criterion(key=key, text=f"Says {key}.", weight=weight)
    return BufferedCriterion.model_validate({"criterion": criterion, "state": state, **fields})


def select(entries: list[BufferedCriterion], *, referenced: bool = False) -> dict[str, str | None]:
    return selected(entries, 3, max_active=2, min_separation=0.05, referenced=referenced)


def test_measured_takes_the_deviation_within_the_group() -> None:
    after = measured(entry("a"), 7, [1.0, 0.0, None, 1.0, 0.0])
    assert after is not None
    assert (after.separation, after.mean, after.trials, after.tested_step) == (0.5, 0.5, 1, 7)
    assert after.pairs == 0


def test_measured_concludes_nothing_from_too_few_verdicts() -> None:
    few: list[list[float | None]] = [[], [1.0], [1.0, None, None], [None] * 4]
    assert [measured(entry("a"), 0, values) for values in few] == [None] * 4


def test_measured_counts_pairs_that_agree_with_the_trusted_judge() -> None:
    after = measured(entry("a"), 0, [0.1, 0.2, 0.9, 0.5], [0.0, 1.0, 1.0, None])
    assert after is not None
    assert (after.agreeing, after.pairs) == (2, 2)
    again = measured(after, 1, [0.9, 0.1], [0.0, 1.0])
    assert again is not None
    assert (again.agreeing, again.pairs, again.trials) == (2, 3, 2)


def test_selected_keeps_the_limit_and_never_moves_frozen_criteria() -> None:
    entries = [
        entry("frozen", "frozen", separation=0.0, tested_step=3),
        entry("old", "active", separation=0.1),
        entry("kept", "active", separation=0.3),
        entry("best", separation=0.5, tested_step=3),
        entry("flat", separation=0.01, tested_step=3),
        entry("asleep", "retired", separation=0.5, tested_step=2),
        entry("untried"),
    ]
    after = select(entries)
    assert after == {"old": "limit", "kept": None, "best": None, "flat": "separation"}


def test_selected_retires_what_does_not_agree() -> None:
    entries = [
        entry("agrees", "active", separation=0.2, agreeing=3, pairs=4),
        entry("opposes", "active", separation=0.5, agreeing=1, pairs=4),
        entry("unknown", separation=0.5, tested_step=3),
    ]
    after = select(entries, referenced=True)
    assert after == {"agrees": None, "opposes": "agreement", "unknown": "agreement"}


def test_selected_keeps_a_retired_criterion_again_and_an_active_one_whose_trial_failed() -> None:
    assert select([entry("a", "retired", reason="separation", separation=0.5, tested_step=3)]) == {"a": None}
    assert select([entry("a", "active", separation=0.5)]) == {"a": None}


def test_agreement_of_rewards_counts_ties_half_and_needs_most_pairs() -> None:
    pairs = np.array([(0, 1), (3, 2), (4, 5)])
    rewards = np.array([1, 0, 0.5, 0.5, 0, 1])
    assert ordered(differences(rewards, pairs)).tolist() == [1.0, 0.5, 0.0]
    assert agreement(rewards, pairs) == 0.5
    assert agreement(np.array([1, np.nan, 0.5, 0.5, 0, 1]), pairs) is None


def test_held_out_result_leaves_out_pairs_without_a_reward() -> None:
    pairs = np.array([(n, n + 1) for n in range(0, 24, 2)])
    best = np.tile([1.0, 0.0], 12)
    start = np.where(np.arange(24) < 12, best, 0.5)
    best[-1] = np.nan
    found = held_out_result(pairs, np.arange(24) // 2, start, best)
    assert (found.prompts, found.units, found.left_out) == (12, 11, 1)
    assert (found.start, found.best, found.gain) == ((6 + 2.5) / 11, 1.0, True)


BASE = Rubric(
    criteria=[
        Criterion(key="dose", text="Names the dose.", weight=6),
        Criterion(key="rude", text="Is rude.", weight=-4),
    ]
)


def test_evolved_rubric_adds_active_criteria_with_a_share_of_the_authored_weights() -> None:
    entries = [
        *(BufferedCriterion(criterion=one, state="frozen") for one in BASE.criteria),
        entry("evolved-1", "retired", 3.0),
        entry("evolved-2", "active", -50.0),
        entry("evolved-3", "active", 0.1),
        entry("evolved-4"),
    ]
    rubric = evolved_rubric(BASE, entries, 0.1)
    assert [(one.key, one.weight) for one in rubric.criteria] == [
        ("dose", 6.0),
        ("rude", -4.0),
        ("evolved-2", -1.0),
        ("evolved-3", 1.0),
    ]
    assert rubric.criteria[:2] == BASE.criteria
    assert evolved_rubric(BASE, entries[:3], 0.1).digest == BASE.digest
