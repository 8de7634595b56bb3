"""The demo from end to end with the real model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rubricsvc.cli.demo import pipeline
from rubricsvc.cli.demo.command import run
from rubricsvc.cli.demo.folder import DemoFolder, DemoSize
from rubricsvc.services.recording import details
from rubricsvc.store.session import Database

TINY = DemoSize(
    training=2, held_out=1, generated=0, samples=2, steps=1, prompts_per_step=1, group_size=2, max_new_tokens=8
)

KEYS = {
    *("prompts", "rubrics", "completions", "verdicts", "failed_verdicts", "reward_before", "reward_after"),
    *("heldout_before", "heldout_after", "train_steps", "seconds"),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread: tests that run in parallel would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_demo_continues_after_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = DemoFolder(tmp_path / "out", TINY, seed=3)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(pipeline, "train_policy", interrupted)
        run(folder)
    assert not folder.summary.exists()
    before = _completions(folder)
    assert len(before) == 3 * 2

    figures = run(folder)
    assert "continuing" in capsys.readouterr().err
    after = _completions(folder)
    assert after[: len(before)] == before
    assert len(after) == 2 * len(before)

    assert figures.keys() >= KEYS
    assert json.loads(folder.summary.read_text()) == figures
    assert (figures["prompts"], figures["rubrics"], figures["completions"]) == (3, 3, 12)
    assert figures["verdicts"] == 12 * 10
    assert figures["judge_figures"] and figures["judge_not_for"]
    assert figures["failed_verdicts"] == 0
    assert (figures["train_steps"], figures["scored_by"]) == (1, "celery")
    assert "scored_by: celery" in folder.report.read_text()
    assert all(0.0 <= figures[key] <= 1.0 for key in KEYS if key.startswith(("reward_", "heldout_")))
    assert folder.report.read_text().startswith("<!doctype html>")
    assert _run(folder) == ("finished", 1, 2, 0)
    assert (folder.training / "checkpoints" / "step-000001" / "model" / "model.safetensors").is_file()

    assert run(folder) == figures
    assert "finished" in capsys.readouterr().err


def _run(folder: DemoFolder) -> tuple[str, int, int | None, int | None]:
    db = Database(f"sqlite:///{folder.database}")
    try:
        with db.read() as session:
            run = details(session, 1)
            return run.status, run.steps, run.rollouts, run.unscored
    finally:
        db.close()


def _completions(folder: DemoFolder) -> list[tuple[int, str]]:
    from rubricsvc.store import completions

    db = Database(f"sqlite:///{folder.database}")
    try:
        with db.read() as session:
            return [(row.id, row.digest) for row in completions.page(session, limit=100, policy=pipeline.POLICY)]
    finally:
        db.close()
