"""The demo's folder: what continues there, and what --fresh deletes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rubricsvc.cli.demo.folder import FAST, FULL, DemoFolder
from rubricsvc.errors import ConflictError


def test_open_again_returns_the_seconds_spent(tmp_path: Path) -> None:
    folder = DemoFolder(tmp_path / "out", FAST, seed=1)
    assert folder.open("questions", fresh=False) == 0.0
    folder.save_seconds(12.5)
    assert DemoFolder(tmp_path / "out", FAST, seed=1).open("questions", fresh=False) == 12.5


@pytest.mark.parametrize(
    ("size", "seed", "content"), [(FULL, 1, "questions"), (FAST, 2, "questions"), (FAST, 1, "other questions")]
)
def test_open_refuses_another_demo_unless_fresh(tmp_path: Path, size: object, seed: int, content: str) -> None:
    DemoFolder(tmp_path, FAST, seed=1).open("questions", fresh=False)
    other = DemoFolder(tmp_path, FULL if size is FULL else FAST, seed)
    with pytest.raises(ConflictError) as caught:
        other.open(content, fresh=False)
    assert "--fresh" in caught.value.hint
    assert other.open(content, fresh=True) == 0.0


def test_open_fresh_removes_only_files_of_the_demo(tmp_path: Path) -> None:
    folder = DemoFolder(tmp_path, FAST, seed=0)
    folder.open("q", fresh=False)
    folder.training.mkdir()
    made = [
        folder.summary,
        folder.report,
        folder.documents,
        tmp_path / "demo.db-wal",
        folder.training / "metrics.jsonl",
    ]
    for path in (*made, tmp_path / "thesis.tex"):
        path.write_text("x")
    folder.open("q", fresh=True)
    assert not any(path.exists() for path in made)
    assert {path.name for path in tmp_path.iterdir()} == {"state.json", "thesis.tex"}


def test_save_summary_writes_whole_json(tmp_path: Path) -> None:
    folder = DemoFolder(tmp_path, replace(FAST, steps=1), seed=0)
    folder.open("q", fresh=False)
    folder.save_summary({"reward_before": None})
    assert json.loads(folder.summary.read_text()) == {"reward_before": None}
    with pytest.raises(ValueError, match=r"nan|not JSON compliant"):
        folder.save_summary({"reward_before": float("nan")})
    assert json.loads(folder.summary.read_text()) == {"reward_before": None}


def test_fast_is_smaller_with_held_out_questions() -> None:
    assert FAST.steps < FULL.steps and FAST.samples < FULL.samples
    assert FULL.training >= 12 and FULL.held_out >= 4 and FULL.generated == 3
    assert FAST.held_out > 0
