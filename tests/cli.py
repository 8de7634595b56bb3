"""The command line in this process, as a fixture: exit code, stdout and stderr."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tests.instant_engine  # noqa: F401 - registers the engine "instant"
from rubricsvc.cli.main import run
from rubricsvc.settings import get_settings
from tests.databases import sqlite_at


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Cli = Callable[..., Ran]


@pytest.fixture
def cli(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Cli]:
    """Run `rubricsvc ARGS` on an empty database of its own; with the fixture ``new_machine`` on none at all."""
    path = tmp_path / "books" / "rubricsvc.db"
    monkeypatch.setenv("RUBRICSVC_DATABASE_URL", f"sqlite:///{path}")
    if "new_machine" not in request.fixturenames:
        path.parent.mkdir()
        sqlite_at(path)
    monkeypatch.setenv("RUBRICSVC_BROKER_URL", "memory://")
    monkeypatch.setenv("RUBRICSVC_COLLECTIONS_DIR", str(tmp_path / "collections"))
    monkeypatch.chdir(tmp_path)
    get_settings.cache_clear()

    def call(*args: object, stdin: str = "") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        code = run([str(arg) for arg in args])
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    yield call
    get_settings.cache_clear()


def add_judge(cli: Cli, name: str = "quick", *options: object, **fields: Any) -> Ran:
    """Add a judge with these fields, of the engine "instant" by default, without a test question."""
    own = {} if "members" in fields else {"engine": "instant", "model": "m"}
    judge = {"name": name, **own, **fields}
    ran = cli("judges", "add", "-f", "-", "--no-probe", *options, stdin=json.dumps(judge))
    assert ran.code == 0, ran.err
    return ran


@pytest.fixture
def new_machine() -> None:
    """Leave out the database."""


@pytest.fixture
def rubric_file(tmp_path: Path) -> Path:
    """Write two prompts, each with its rubric."""
    path = tmp_path / "rubrics.yaml"
    path.write_text(
        "- {id: one, name: first, prompt: What is one?, criteria: [Says one., {text: Is rude., weight: -1}]}\n"
        "- {id: two, name: second, prompt: What is two?, criteria: [Says two.]}\n"
    )
    return path


def stored(cli: Cli, name: str) -> dict[str, Any]:
    judge: dict[str, Any] = cli("judges", "show", name, "--json").json["judge"]
    return judge
