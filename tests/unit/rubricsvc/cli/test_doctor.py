"""What the doctor finds, and what it says to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.cli import doctor, main
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.store import judges, migrate
from rubricsvc.store.session import Database
from tests.rows import keep_unusable
from tests.scripted_server import labels, scripted_server
from tests.services import free_port
from workers.checks.sandbox import runner as sandbox


@pytest.fixture(autouse=True)
def environment(db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUBRICSVC_DATABASE_URL", db.url)
    monkeypatch.setenv("RUBRICSVC_CACHE_DIR", str(tmp_path / "cache"))
    yield


def examine(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, Any]]]:
    code = main.run(["doctor", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is (code == 0)
    return code, {finding["check"]: finding for finding in said["checks"]}


def keep(db: Database, **fields: Any) -> None:
    with db.write() as session:
        judges.add(session, Judge.model_validate({"name": "j", "model": "scripted", **fields}))


def test_all_is_well(capsys: pytest.CaptureFixture[str], db: Database) -> None:
    with scripted_server(labels(Yes=1.0)) as server:
        keep(db, endpoint=Endpoint(base_url=server.url))
        code, found = examine(capsys)
    assert (code, found["judge j"]["detail"]) == (0, f"{server.url} serves scripted")
    assert not any(finding["mending"] for finding in found.values())


def test_what_checks_need(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None if name == "sacrebleu" else object())
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox._problem.cache_clear()
    try:
        code, found = examine(capsys)
    finally:
        sandbox._problem.cache_clear()
    assert code == 0
    assert found["checks"]["detail"].startswith("without sacrebleu: ")
    assert "not installed" in found["sandbox"]["detail"] and "apt-get install bubblewrap" in found["sandbox"]["detail"]


def test_a_database_that_is_not_there_yet_is_not_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUBRICSVC_DATABASE_URL", f"sqlite:///{tmp_path / 'none' / 'x.db'}")
    code, found = examine(capsys)
    assert (code, found["database"]["ok"]) == (0, True)
    assert not (tmp_path / "none").exists()


def test_an_old_schema(capsys: pytest.CaptureFixture[str], db: Database) -> None:
    migrate.downgrade(db, "base")
    code, found = examine(capsys)
    assert (code, found["database"]["mending"]) == (1, "run `rubricsvc db upgrade`")


def test_servers_that_are_away(
    capsys: pytest.CaptureFixture[str], db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUBRICSVC_BROKER_URL", f"redis://:secret@127.0.0.1:{free_port()}/0")
    keep(db, endpoint=Endpoint(base_url=f"http://127.0.0.1:{free_port()}/v1"))
    code, found = examine(capsys)
    assert code == 1
    assert not found["broker"]["ok"]
    assert "start the model server" in found["judge j"]["mending"]
    assert "secret" not in json.dumps(found)


def test_a_server_of_another_model(capsys: pytest.CaptureFixture[str], db: Database) -> None:
    with scripted_server(labels(Yes=1.0)) as server:
        keep(db, model="other", endpoint=Endpoint(base_url=server.url))
        code, found = examine(capsys)
    assert (code, found["judge j"]["mending"]) == (1, "it serves scripted; correct the judge's model")


def test_a_url_that_is_no_api(capsys: pytest.CaptureFixture[str], db: Database) -> None:
    with scripted_server(labels(Yes=1.0)) as server:
        keep(db, endpoint=Endpoint(base_url=server.url.removesuffix("/v1")))
        code, found = examine(capsys)
    assert (code, found["judge j"]["detail"]) == (1, f"{server.url.removesuffix('/v1')}: HTTP 404")


def test_a_local_model_without_torch(
    capsys: pytest.CaptureFixture[str], db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(db, engine="transformers_local", model="embedded")
    assert examine(capsys)[0] == 0
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda _name: None)
    code, found = examine(capsys)
    assert (code, found["judge j"]["mending"]) == (1, "pip install 'rubricsvc[train]'")
    assert found["models in process"]["ok"]  # nobody needs torch for a service without local models


def test_a_wrong_setting(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICSVC_PORT", "many")
    code, found = examine(capsys)
    assert (code, list(found)) == (1, ["settings"])
    assert found["settings"]["detail"].startswith("setting RUBRICSVC_PORT: ")


def test_a_full_disk(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_ROOM", 10**18)
    code, found = examine(capsys)
    assert code == 1
    assert "make room" in found["disk of the database folder"]["mending"]


@pytest.mark.parametrize(
    ("url", "words"),
    [("sqlite:///:memory:", "in-memory"), ("sqlite:///{here}/text", "not a database"), ("oracle://x", "not supported")],
)
def test_what_can_be_no_database_is_not_well(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str, words: str
) -> None:
    (tmp_path / "text").write_text("not a database, though it is long enough for its header to be looked at\n" * 20)
    monkeypatch.setenv("RUBRICSVC_DATABASE_URL", url.format(here=tmp_path))
    code, found = examine(capsys)
    assert code == 1
    assert words in found["database"]["detail"] and found["database"]["mending"]


def test_a_disk_that_takes_no_file(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICSVC_CACHE_DIR", "/proc/nowhere")  # there is room, but not for files
    code, found = examine(capsys)
    assert code == 1
    assert "cannot be written to" in found["disk of the model cache"]["detail"]


def test_an_address_kept_by_an_earlier_version(capsys: pytest.CaptureFixture[str], db: Database) -> None:
    keep_unusable(db, "http://[")
    code, found = examine(capsys)
    assert code == 1
    assert "base_url is no address of a server" in found["judge old"]["detail"]
    assert "rubricsvc judges add old" in found["judge old"]["mending"]


def test_for_people_each_finding_is_a_line_with_a_mark(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUBRICSVC_BROKER_URL", f"amqp://127.0.0.1:{free_port()}//")
    assert main.run(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("✗")] == [
        line for line in lines if "broker: " in line and "✗" in line
    ]
    assert sum(line.startswith("  → ") for line in lines) == 1
