"""The checks of a preview: what is refused, and what is a warning."""

from __future__ import annotations

from typing import Any

from rubricsvc.core.estimate import Estimate
from trainer.preflight import PreflightCheck, preview_checks
from trainer.preview import Preview


def seen(**fields: Any) -> Preview:
    known: dict[str, Any] = {"groups": 8, "with_signal": 8, "features": {}, "criteria": {}, "by_chance": 0.2}
    return Preview(**{**known, "best_of": 4, "reward_gain": 0.2, "gold_gain": None, **fields})


def checks(one: Preview | None, *, warmed_up: bool = True, several: bool = True) -> dict[str, PreflightCheck]:
    return {check.name: check for check in preview_checks(one, 0.0, warmed_up=warmed_up, several=several)}


def test_a_preview_without_any_rewards_is_refused() -> None:
    found = checks(None)
    assert [check.name for check in found.values() if check.is_refusal] == ["signal"]
    assert not any(check.is_refusal for check in checks(None, warmed_up=False).values())


def test_signal_needs_a_quarter_of_the_prompts() -> None:
    for with_signal, refused in [(0, True), (1, True), (2, False)]:
        found = checks(seen(with_signal=with_signal), several=False)
        assert any(check.is_refusal for check in found.values()) == refused


def test_criteria_that_do_not_vary_do_not_decide() -> None:
    cases = [({}, False), ({"a": 0.9}, False), ({"a": 0.9, "b": 0.05}, False), ({"a": 0.5, "b": -0.4}, True)]
    for taus, passed in cases:
        one = seen(criteria={name: Estimate(value) for name, value in taus.items()})
        assert checks(one)["criteria"].passed == passed
        assert "criteria" not in checks(one, several=False)


def test_form_names_all_that_are_beyond_the_limit_and_chance() -> None:
    features = {"length": Estimate(0.1), "lists": Estimate(0.35), "bold": Estimate(-0.6), "emoji": Estimate(0.2)}
    found = checks(seen(features=features))
    assert (found["length"].passed, found["form"].passed) == (True, False)
    assert found["form"].value == "bold -0.60, lists 0.35"
    assert checks(seen(features=features, by_chance=0.4))["form"].value == "bold -0.60"
    assert checks(seen(features=features, by_chance=0.7))["form"].passed
    assert checks(seen(features={"length": Estimate(-0.4)}))["length"].passed is False
