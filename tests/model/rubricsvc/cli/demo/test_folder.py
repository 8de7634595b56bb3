"""The demo's folder: what continues there, and what --fresh deletes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubricsvc.cli.demo.folder import FAST, FULL, DemoFolder, DemoSize
from rubricsvc.errors import ConflictError


def test_open_again_continues(tmp_path: Path) -> None:
    assert not DemoFolder(tmp_path / "out", FAST, seed=1).open(fresh=False)
    assert DemoFolder(tmp_path / "out", FAST, seed=1).open(fresh=False)


@pytest.mark.parametrize(("size", "seed"), [(FULL, 1), (FAST, 2)])
def test_open_refuses_another_demo_unless_fresh(tmp_path: Path, size: DemoSize, seed: int) -> None:
    DemoFolder(tmp_path, FAST, seed=1).open(fresh=False)
    other = DemoFolder(tmp_path, size, seed)
    with pytest.raises(ConflictError) as caught:
        other.open(fresh=False)
    assert "--fresh" in caught.value.hint
    assert not other.open(fresh=True)


def test_open_fresh_removes_only_files_of_the_demo(tmp_path: Path) -> None:
    folder = DemoFolder(tmp_path, FAST, seed=0)
    folder.open(fresh=False)
    folder.training.mkdir()
    made = [
        folder.summary,
        folder.report,
        tmp_path / "demo.db-wal",
        folder.training / "metrics.jsonl",
    ]
    for path in (*made, tmp_path / "thesis.tex"):
        path.write_text("x")
    folder.open(fresh=True)
    assert not any(path.exists() for path in made)
    assert {path.name for path in tmp_path.iterdir()} == {"state.json", "thesis.tex"}


def test_fast_is_smaller_with_held_out_questions() -> None:
    assert FAST.steps < FULL.steps and FAST.samples < FULL.samples
    assert FULL.training >= 12 and FULL.held_out >= 4 and FULL.generated == 3
    assert FAST.held_out > 0


def test_is_finished_needs_report_and_summary(tmp_path: Path) -> None:
    folder = DemoFolder(tmp_path, FAST, seed=0)
    folder.summary.write_text("{}")
    assert not folder.is_finished
    folder.report.write_text("<html>")
    assert folder.is_finished
