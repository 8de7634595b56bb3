"""The demo's folder: what was begun there is gone on with, and nothing of other people's is touched."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rubricsvc.cli.demo.plan import FAST, FULL, Workplace
from rubricsvc.errors import ConflictError


def test_a_second_call_goes_on(tmp_path: Path) -> None:
    work = Workplace(tmp_path / "out", FAST, seed=1)
    assert work.begin("questions", fresh=False) == 0.0
    work.spent(12.5)
    assert Workplace(tmp_path / "out", FAST, seed=1).begin("questions", fresh=False) == 12.5


@pytest.mark.parametrize(
    ("size", "seed", "content"), [(FULL, 1, "questions"), (FAST, 2, "questions"), (FAST, 1, "other questions")]
)
def test_another_demo_in_the_same_folder_is_refused_until_it_may_begin_anew(
    tmp_path: Path, size: object, seed: int, content: str
) -> None:
    Workplace(tmp_path, FAST, seed=1).begin("questions", fresh=False)
    other = Workplace(tmp_path, FULL if size is FULL else FAST, seed)
    with pytest.raises(ConflictError) as caught:
        other.begin(content, fresh=False)
    assert "--fresh" in caught.value.hint
    assert other.begin(content, fresh=True) == 0.0


def test_fresh_removes_what_the_demo_made_and_nothing_else(tmp_path: Path) -> None:
    work = Workplace(tmp_path, FAST, seed=0)
    work.begin("q", fresh=False)
    work.training.mkdir()
    made = [work.summary, work.report, work.documents, tmp_path / "demo.db-wal", work.training / "metrics.jsonl"]
    for path in (*made, tmp_path / "thesis.tex"):
        path.write_text("x")
    work.begin("q", fresh=True)
    assert not any(path.exists() for path in made)
    assert {path.name for path in tmp_path.iterdir()} == {"plan.json", "thesis.tex"}


def test_the_summary_is_json_and_whole(tmp_path: Path) -> None:
    work = Workplace(tmp_path, replace(FAST, steps=1), seed=0)
    work.begin("q", fresh=False)
    work.finish({"reward_before": None})
    assert json.loads(work.summary.read_text()) == {"reward_before": None}
    with pytest.raises(ValueError, match=r"nan|not JSON compliant"):
        work.finish({"reward_before": float("nan")})
    assert json.loads(work.summary.read_text()) == {"reward_before": None}


def test_fast_is_smaller_and_both_hold_questions_out() -> None:
    assert FAST.steps < FULL.steps and FAST.samples < FULL.samples
    assert FULL.training >= 12 and FULL.held_out >= 4 and FULL.generated == 3
    assert FAST.held_out > 0
