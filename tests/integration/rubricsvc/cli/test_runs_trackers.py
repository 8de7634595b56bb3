"""`runs start` with trackers."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli import Cli
from tests.integration.rubricsvc.cli.test_runs_eval import CONFIG

NAMES = ("tensorboard", "trackio", "wandb")


def test_runs_start_refuses_trackers_that_are_not_installed(cli: Cli, rubric_file: Path, tmp_path: Path) -> None:
    missing = [name for name in NAMES if find_spec(name) is None]
    if not missing:
        pytest.skip("all trackers are installed")
    (tmp_path / "first.toml").write_text(f"trackers = {missing}\n{CONFIG}")  # and there is no policy
    ran = cli("runs", "start", "first.toml")
    assert (ran.code, (tmp_path / "runs").exists()) == (3, False)
    assert f"rubricsvc[{','.join(missing)}]" in ran.err
