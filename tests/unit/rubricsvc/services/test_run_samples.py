"""The samples that a report shows first."""

from __future__ import annotations

from rubricsvc.services.runs import SHOWN, of_several_prompts


def test_of_several_prompts_shows_the_best_of_each_first() -> None:
    ranked = ["a1", "a2", "a3", "b1", "a4", "b2", "c1"]
    assert of_several_prompts(ranked, lambda one: one[0]) == ["a1", "b1", "c1", "a2", "b2"]


def test_of_several_prompts_shows_more_of_the_only_prompt() -> None:
    assert of_several_prompts(list("abcdefgh"), lambda _: 0) == list("abcdefgh")[:SHOWN]
