"""The checks of a preview: what is refused, and what is a warning."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rubricsvc.core.audit import Deviation, Repeatability
from rubricsvc.core.estimate import Estimate
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.schemas import StoredJudge
from trainer.config import RunConfig
from trainer.data.tasks import Task
from trainer.preflight import Preflight, PreflightCheck, Preview, StoredPreflight, preview_checks
from trainer.run import Run, RunJudge, RunTasks


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


CHECK = PreflightCheck(name="signal", value="v", limit="l", passed=True)
STRONG, WEAK = (Judge(name="gold", model=model) for model in ("strong", "weak"))
EVAL: dict[str, Any] = {"path": "held-out.yaml", "judges": [STRONG]}


def preflight(folder: Path, *, noise: float | None = None, **fields: Any) -> Preflight:
    judge = Judge(name="j", model="m")
    run = RunConfig(steps=1, data={"path": "p"}, judge=judge, out=folder / "run", **{"eval": EVAL, **fields})
    measured = None
    if noise is not None:
        deviation = Deviation(n=9, value=noise)
        measured = Repeatability(
            fingerprint="f",
            source="s",
            measured_at=datetime.now(UTC),
            repeats=2,
            completions=9,
            criteria={},
            reward=deviation,
        )
    task = Task(Prompt.of("Why?"), Rubric(criteria=(Criterion(key="k", text="k"),)), "t")
    row = {"id": 1, "created_at": datetime.now(UTC), "name": "j", "digest": judge.digest}
    stored = StoredJudge(**row, judge=judge, repeatability=measured)
    made = Run(run)
    made.__dict__ |= {"_judged": (run, RunJudge(judge, stored=stored)), "tasks": RunTasks([task], [])}
    return Preflight(made)


def store(made: Preflight) -> None:
    found = StoredPreflight(identity=made.identity(), created_at=datetime.now(UTC), checks=(CHECK,))
    made.file.write_text(found.model_dump_json())


def test_stored_checks_hold_for_the_same_measurement(tmp_path: Path) -> None:
    cases = [
        {"noise": 0.1},
        {"eval": None},
        {"eval": EVAL | {"judges": [WEAK]}},
        {"eval": EVAL | {"gold": "reward"}},
        {"demonstrations": {"path": "d.jsonl", "steps": 4}},
        {"sampling": {"max_new_tokens": 7}},
    ]
    for changes in cases:
        store(preflight(tmp_path))
        assert preflight(tmp_path).stored() == [CHECK]
        assert preflight(tmp_path, **changes).stored() == []


def test_stored_checks_hold_for_another_address_and_interval(tmp_path: Path) -> None:
    store(preflight(tmp_path))
    endpoint = STRONG.endpoint.model_copy(update={"base_url": "http://127.0.0.1:9"})
    moved = STRONG.model_copy(update={"endpoint": endpoint})
    assert preflight(tmp_path, eval=EVAL | {"judges": [moved], "every": 7}).stored() == [CHECK]
