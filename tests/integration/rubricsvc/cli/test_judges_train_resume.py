"""`judges train --resume`: after an interrupt, a damaged checkpoint and a full disk."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Cli
from tests.integration.rubricsvc.cli.test_judges_train import config, model

__all__ = ["config", "model"]


def test_judges_train_interrupted_and_damaged_ends_with_the_same_weights(
    cli: Cli, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainer.judge_training import run, training

    weights = tmp_path / "out" / "judge" / "adapter_model.safetensors"
    config = config.rename(tmp_path / "my judge.toml")

    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run, "probabilities", interrupt)
        examined = cli("judges", "train", config, "--no-audit", "--no-add")
    assert examined.code == 130
    continued = f"rubricsvc judges train '{config}' --no-audit --no-add --resume"
    assert continued in examined.err
    expected = weights.read_bytes()
    (tmp_path / "out").rename(tmp_path / "whole")

    step, seen = training._step, list[int]()

    def interrupted(*args: Any) -> Any:
        seen.append(args[-1])
        if seen[-1] == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return step(*args)

    with monkeypatch.context() as patched:
        patched.setattr(training, "_step", interrupted)
        stopped = cli("judges", "train", config, "--no-audit", "--no-add")
    assert (stopped.code, seen) == (130, [0, 1, 2, 3])
    assert continued in stopped.err
    newest = tmp_path / "out" / "checkpoints" / "step-000004"
    (newest / "model" / "best.safetensors").write_bytes(b"\0" * 100)
    resumed = cli("judges", "train", config, "--no-audit", "--no-add", "--resume")
    assert resumed.code == 0, resumed.err
    assert "damaged-step-000004" in resumed.err and "best.safetensors" in resumed.err
    assert weights.read_bytes() == expected

    results = {name: (weights.parent / name).read_bytes() for name in ("judge.json", "passport.json")}
    with monkeypatch.context() as patched:
        patched.setattr(run, "probabilities", interrupt)
        again = cli("judges", "train", config, "--no-audit", "--no-add", "--resume")
    assert again.code == 130
    assert {name: (weights.parent / name).read_bytes() for name in results} == results
