"""What an earlier preflight holds for."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rubricsvc.core.audit import Deviation, Repeatability
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.schemas import StoredJudge
from trainer.config import RunConfig
from trainer.data.tasks import Task
from trainer.preflight import Preflight, PreflightCheck, StoredPreflight
from trainer.run import AuditStatus, Run, RunJudge, RunTasks

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
    made.__dict__ |= {"_judged": (run, RunJudge(judge, AuditStatus("j"), stored)), "tasks": RunTasks([task], [])}
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
