"""Preference pairs out of rewards."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.preference import Preference, preferences


def test_preferences_choose_the_better_and_skip_ties() -> None:
    assert list(preferences([0.5, 0.5, 0.75])) == [Preference(2, 0, 0.25), Preference(2, 1, 0.25)]
    assert list(preferences([1.0, 0.75, 0.0], min_margin=0.5)) == [Preference(0, 2, 1.0), Preference(1, 2, 0.75)]
    assert list(preferences([0.5])) == []


@given(st.lists(st.floats(-1, 1), max_size=8), st.floats(0, 1))
def test_preferences_agree_with_the_rewards(rewards: list[float], least: float) -> None:
    for pair in preferences(rewards, least):
        assert rewards[pair.chosen] - rewards[pair.rejected] == pair.margin > 0
        assert pair.margin >= least
