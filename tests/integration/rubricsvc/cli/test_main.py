"""The command line in a pipe whose reader has gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import Cli


def exit_code_with_reader(command: str, reader: str, tmp_path: Path) -> tuple[str, str]:
    """Return the exit code and stderr of `rubricsvc COMMAND | READER`."""
    environment = {**os.environ, "RUBRICSVC_DATABASE_URL": f"sqlite:///{tmp_path}/rubricsvc.db"}
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m rubricsvc {command} | {reader}; echo ${{PIPESTATUS[0]}}"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1], done.stderr


@pytest.mark.parametrize(
    ("command", "code"), [("rubrics lint {file} --json", "0"), ("rubrics list", "0"), ("rubrics diff a b", "1")]
)
@pytest.mark.parametrize("reader", ["head -1", "true"])
def test_closed_stdout_does_not_change_the_exit_code(
    cli: Cli, tmp_path: Path, command: str, code: str, reader: str
) -> None:
    rubrics = tmp_path / "many.yaml"
    rubrics.write_text("".join(f"- {{name: n{n}, criteria: [{'x' * 200}]}}\n" for n in range(2000)))
    for name in "ab":
        criteria = "".join(f"  - {name} {n} {'x' * 50}\n" for n in range(1000))
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\ncriteria:\n{criteria}")
        assert cli("rubrics", "import", tmp_path / f"{name}.yaml").code == 0
    exit_code, stderr = exit_code_with_reader(command.format(file=rubrics), reader, tmp_path / "books")
    assert (exit_code, stderr) == (code, "")


@pytest.mark.parametrize("command", ["rubrics list", "jobs list --json", "prompts show 1"])
def test_stdout_that_the_caller_closed_is_no_bug(tmp_path: Path, command: str) -> None:
    database = {"RUBRICSVC_DATABASE_URL": f"sqlite:///{tmp_path}/rubricsvc.db"}
    line = f"{sys.executable} -m rubricsvc {command}"
    codes = [
        subprocess.run(["bash", "-c", f"{line} {end}"], env=os.environ | database, check=False).returncode
        for end in ("", ">&-")
    ]
    assert codes[0] == codes[1] != 70
