"""Signals and closed output of commands, and their workers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rubricsvc.settings import get_settings
from rubricsvc.store.session import Database
from tests.cli import Cli, add_judge
from tests.scripted_server import labels, scripted_server
from workers.queue.app import embedded_worker


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


@pytest.mark.parametrize("ends", ["| true", "2>&1 | true"])
def test_closed_output_does_not_undo_the_work(cli: Cli, tmp_path: Path, ends: str) -> None:
    """The reader is gone before the command prints its first line, to stdout or to stderr."""
    (tmp_path / "rubric.yaml").write_text("{name: r, prompt: Why?, criteria: [Says so.], completions: [So.]}\n")
    for command, listed in (
        ("judges add j --url http://127.0.0.1:9/v1 --model m --no-probe --json", "judges"),
        ("rubrics import rubric.yaml", "rubrics"),
        ("jobs submit rubric.yaml --judge j", "jobs"),
        ("keys create me", "keys"),
    ):
        line = f"({sys.executable} -m rubricsvc {command}; echo $? > code) {ends}"
        subprocess.run(["bash", "-c", line], check=True, cwd=tmp_path, stderr=subprocess.DEVNULL)
        assert (tmp_path / "code").read_text() == "0\n"
        assert len(cli(listed, "list", "--json").lines) == 1, command


def test_closed_stderr_does_not_end_a_wait(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "rubric.yaml").write_text("{name: r, prompt: Why?, criteria: [Says so.], completions: [So.]}\n")
    with scripted_server(labels(Yes=0.75, No=0.25)) as server:
        add_judge(cli, "j", engine="openai_http", model="scripted", endpoint={"base_url": server.url})
        command = f"{sys.executable} -m rubricsvc jobs submit rubric.yaml --judge j --wait"
        line = f"({command}; echo $? > code) 2>&1 | true"
        subprocess.run(["bash", "-c", line], check=True, cwd=tmp_path)
    assert (tmp_path / "code").read_text() == "0\n", "the exit code is of the job"
    assert cli("jobs", "show", 1, "--json").json["status"] == "completed"


@pytest.mark.parametrize("command", ["rubrics list", "jobs list --json", "prompts show 1"])
def test_stdout_that_the_caller_closed_is_no_bug(tmp_path: Path, command: str) -> None:
    database = {"RUBRICSVC_DATABASE_URL": f"sqlite:///{tmp_path}/rubricsvc.db"}
    line = f"{sys.executable} -m rubricsvc {command}"
    codes = [
        subprocess.run(["bash", "-c", f"{line} {end}"], env=os.environ | database, check=False).returncode
        for end in ("", ">&-")
    ]
    assert codes[0] == codes[1] != 70


NO_WORKER = "No worker is running"


def workers(cli: Cli) -> list[str]:
    """Return the workers that `doctor` lists as running."""
    checks = cli("doctor", "--json").json["checks"]
    return [one["check"] for one in checks if one["check"].startswith("worker ") and "running" in one["detail"]]


def test_doctor_and_submit_see_an_embedded_worker(cli: Cli, rubric_file: Path) -> None:
    add_judge(cli)
    cli("rubrics", "import", rubric_file)
    cli("completions", "import", "-", stdin='{"prompt": "What is one?", "text": "1"}\n')
    settings = get_settings()
    db = Database(settings.database_url)
    with embedded_worker(settings, db):
        assert [one.split(":")[1] for one in workers(cli)] == [str(os.getpid())]
        assert NO_WORKER not in cli("jobs", "submit", "--judge", "quick").err
    db.close()
    assert workers(cli) == []
    assert NO_WORKER in cli("jobs", "submit", "--judge", "quick", "--key", "again").err
