"""The preflight: is the judge better than chance, what does the reward follow, and what is refused."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rubricsvc.core.audit import Audit, Deviation, Repeatability, SuiteResult
from rubricsvc.core.estimate import Estimate
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import UNTRAINED
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.formats.documents import load_passport
from rubricsvc.schemas.judges import StoredJudge
from rubricsvc.stats.intervals import rate
from rubricsvc.stats.ranking import concordance, tau_b
from trainer.config import OptimConfig, RunConfig
from trainer.data.tasks import Task
from trainer.preflight import (
    CHANCE,
    Preflight,
    PreflightCheck,
    Preview,
    StoredPreflight,
    accuracy,
    judge_checks,
    largest_by_chance,
    preview,
    preview_checks,
    right_orders,
)
from trainer.run import Run, RunJudge, RunTasks
from workers.engines.local.weights import PASSPORT_FILE, SHIPPED


def audit(wrongly_met: int, missed: int, n: int = 33) -> Audit:
    suites = (
        SuiteResult(name="plain", measure="met", rate=rate(wrongly_met, n), max_rate=0.2),
        SuiteResult(name="missed", measure="missed", rate=rate(missed, n), max_rate=0.5),
    )
    return Audit(digest="d", fingerprint="f", suites=suites)


def test_accuracy_of_an_audit_says_who_is_above_chance() -> None:
    for wrongly_met, missed, above in [(2, 8, True), (18, 13, False), (33, 0, False), (0, 33, False), (0, 0, True)]:
        found = accuracy(None, "", audit(wrongly_met, missed), None)
        assert found is not None and ((found[0].low or 0.0) > CHANCE) is above
        assert found[0].value == pytest.approx(1 - (wrongly_met + missed) / 66)


def test_accuracy_of_an_audit_covers_the_balanced_accuracy() -> None:
    """Of simulated judges with error rates of 0.3 and 0.4, about 95 % of the intervals hold 0.65."""
    draws = np.random.default_rng(0)
    counts = zip(draws.binomial(33, 0.3, 400), draws.binomial(33, 0.4, 400), strict=True)
    found = [accuracy(None, "", audit(int(plain), int(missed)), None) for plain, missed in counts]
    held = [one[0].low < 0.65 < (one[0].high or 0.0) for one in found if one is not None and one[0].low]
    assert 0.92 < sum(map(bool, held)) / 400 < 0.99


def test_accuracy_of_a_passport_tells_the_shipped_judge_from_its_base() -> None:
    passport = load_passport(SHIPPED / PASSPORT_FILE)
    trained, untrained = accuracy(None, "", None, passport), accuracy(None, "", None, passport, UNTRAINED)
    assert trained is not None and (trained[0].low or 0.0) > CHANCE
    assert untrained is not None and (untrained[0].low or 0.0) < CHANCE


def test_accuracy_is_by_the_audit_before_the_passport() -> None:
    check = judge_checks("j", audit=audit(33, 0), passport=load_passport(SHIPPED / PASSPORT_FILE))[0]
    assert (check.name, check.passed, check.refuses) == ("accuracy", False, True) and "audit" in check.value
    assert judge_checks("j")[0].passed is None


N, PROMPTS = 8, 12


def made(seed: int = 0) -> tuple[list[list[float]], list[list[float]]]:
    """Return lengths, and rewards that rise with them."""
    draws = np.random.default_rng(seed)
    lengths = draws.integers(1, 100, (PROMPTS, N)).astype(float)
    return lengths.tolist(), (lengths / 100 + draws.normal(0, 0.05, lengths.shape)).tolist()


def test_preview_finds_what_the_reward_follows() -> None:
    lengths, rewards = made()
    lists = np.random.default_rng(1).integers(0, 2, (PROMPTS, N)).tolist()
    found = preview(rewards, {"length": lengths, "lists": lists, "same": [[1.0] * N] * PROMPTS}, {}, None, 0.0)
    length, other = found.features["length"], found.features["lists"]
    assert length.low is not None and length.low > 0.6
    assert other.low is not None and other.high is not None and other.low < 0.2 and other.high > -0.2
    assert "same" not in found.features and found.gold_gain is None


def test_preview_sees_gold_fall_where_the_reward_rises() -> None:
    """Gold rises up to a length of 40, and falls beyond it: choosing longer samples helps at first."""
    lengths, rewards = made()
    gold = [[1 - abs(one - 40) / 60 for one in group] for group in lengths]
    found = preview(rewards, {}, {}, gold, 0.0)
    assert found.best_of == 8 and found.reward_gain > 0.2
    assert found.gold_gain is not None and found.gold_gain.high is not None and found.gold_gain.high < 0


def test_right_orders_are_shares_at_growing_differences() -> None:
    rewards = [[0.5, 0.51], [0.5, 0.51], [0.2, 0.8], [0.4, 0.4], [0.1, 0.9]] * 20
    gold = [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.5, 0.5]] * 20
    assert right_orders(rewards[:23], gold[:23]) == []  # 19 pairs; gold of the last prompt has no order
    found = right_orders(rewards, gold)
    assert found == [(0.0, 0.5), (0.01, 0.5), (0.01, 0.5), (0.6, 1.0)]
    assert OptimConfig(pairwise_accuracy=tuple(found)).pairwise_accuracy == tuple(found)


def test_preview_counts_prompts_above_the_noise() -> None:
    for noise, with_signal in [(0.0, 2), (0.2, 1), (1.0, 0)]:
        found = preview([[0.0, 1.0], [0.4, 0.5], [0.3, 0.3]], {}, {}, None, noise)
        assert (found.groups, found.with_signal) == (3, with_signal)


def test_noise_alone_is_seldom_a_signal() -> None:
    noise = np.random.default_rng(0).normal(0.5, 0.1, (400, N)).tolist()
    assert preview(noise, {}, {}, None, 0.1).with_signal < 0.08 * 400


def test_largest_by_chance_is_exceeded_in_one_of_20_samples_by_any_of_the_features() -> None:
    """Rewards that have nothing to do with nine features, three of them rare."""
    draws = np.random.default_rng(0)
    raised = 0
    for _ in range(200):
        rewards = draws.random((4, N)).tolist()
        features = [(draws.random((4, N)) < 0.1 + 0.1 * at).astype(float).tolist() for at in range(9)]
        pairs = [[list(zip(*both, strict=True)) for both in zip(rewards, each, strict=True)] for each in features]
        raised += (
            max(abs(tau_b(map(concordance, each)) or 0.0) for each in pairs)
            > largest_by_chance(rewards, features) + 1e-9
        )
    assert 2 <= raised <= 20


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
        assert checks(one)["criteria"].passed == passed and "criteria" not in checks(one, several=False)


def test_form_names_all_that_are_beyond_the_limit_and_chance() -> None:
    features = {"length": Estimate(0.1), "lists": Estimate(0.35), "bold": Estimate(-0.6), "emoji": Estimate(0.2)}
    found = checks(seen(features=features))
    assert (found["length"].passed, found["form"].passed) == (True, False)
    assert found["form"].value == "bold -0.60, lists 0.35"
    assert checks(seen(features=features, by_chance=0.4))["form"].value == "bold -0.60"
    assert checks(seen(features=features, by_chance=0.7))["form"].passed
    assert checks(seen(features={"length": Estimate(-0.4)}))["length"].passed is False


CHECK = PreflightCheck(name="signal", value="v", limit="l", passed=True)
STRONG, WEAK = (Judge(name="gold", model=model) for model in ("strong", "weak"))
EVAL: dict[str, Any] = {"path": "held-out.yaml", "judges": [STRONG]}


def preflight(folder: Path, *, noise: float | None = None, **fields: Any) -> Preflight:
    judge = Judge(name="j", model="m")
    run = RunConfig(steps=1, data={"path": "p"}, judge=judge, out=folder / "run", **{"eval": EVAL, **fields})
    measured = None
    if noise is not None:
        about: dict[str, Any] = {"fingerprint": "f", "source": "s", "measured_at": datetime.now(UTC), "repeats": 2}
        measured = Repeatability(**about, completions=9, criteria={}, reward=Deviation(n=9, value=noise))
    task = Task(Prompt.of("Why?"), Rubric(criteria=(Criterion(key="k", text="k"),)), "t")
    row = {"id": 1, "created_at": datetime.now(UTC), "name": "j", "digest": judge.digest}
    stored = StoredJudge(**row, judge=judge, repeatability=measured)
    made = Run(run)
    made.__dict__ |= {"_judged": (run, RunJudge(judge, stored=stored)), "tasks": RunTasks([task], [])}
    return Preflight(made)


def test_stored_checks_hold_for_the_same_measurement_at_any_address(tmp_path: Path) -> None:
    moved = STRONG.model_copy(
        update={"endpoint": STRONG.endpoint.model_copy(update={"base_url": "http://127.0.0.1:9"})}
    )
    cases = [
        {"noise": 0.1}, {"eval": None}, {"eval": EVAL | {"judges": [WEAK]}}, {"eval": EVAL | {"gold": "reward"}},
        {"demonstrations": {"path": "d.jsonl", "steps": 4}}, {"sampling": {"max_new_tokens": 7}},
    ]  # fmt: skip
    for changes in cases:
        made = preflight(tmp_path)
        found = StoredPreflight(identity=made.identity(), created_at=datetime.now(UTC), checks=(CHECK,))
        made.file.write_text(found.model_dump_json())
        for same in ({}, {"eval": EVAL | {"judges": [moved], "every": 7}}):
            assert preflight(tmp_path, **same).stored() == [CHECK]
        assert preflight(tmp_path, **changes).stored() == []
