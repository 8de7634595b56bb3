"""`rubricsvc doctor`: results and fixes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.cli import main
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.store import judges
from rubricsvc.store.session import Database
from tests.databases import downgrade
from tests.rows import invalidate
from tests.scripted_server import labels, scripted_server
from tests.services import free_port


@pytest.fixture(autouse=True)
def environment(db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUBRICSVC_DATABASE_URL", db.url)
    monkeypatch.setenv("RUBRICSVC_CACHE_DIR", str(tmp_path / "cache"))
    yield


def diagnose(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, Any]]]:
    code = main.run(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is (code == 0)
    return code, {result["check"]: result for result in report["checks"]}


def keep(db: Database, **fields: Any) -> None:
    with db.write() as session:
        judges.add(session, Judge.model_validate({"name": "j", "model": "scripted", **fields}))


def test_doctor_passes_with_a_served_model(capsys: pytest.CaptureFixture[str], db: Database) -> None:
    with scripted_server(labels(Yes=1.0)) as server:
        keep(db, endpoint=Endpoint(base_url=server.url))
        code, results = diagnose(capsys)
    assert (code, results["judge j"]["ok"]) == (0, True)
    assert not any(result["fix"] for result in results.values())


def test_doctor_fixes_an_old_schema_by_upgrade(capsys: pytest.CaptureFixture[str], db: Database) -> None:
    downgrade(db, "base")
    code, results = diagnose(capsys)
    assert (code, results["database"]["fix"]) == (1, "run `rubricsvc db upgrade`")
    assert "workers" not in results, "nothing was read"


def test_doctor_reports_a_stored_judge_no_longer_valid(capsys: pytest.CaptureFixture[str], db: Database) -> None:
    keep(db, engine="transformers_local", model="embedded")
    invalidate(db, "j", base_url="http://api.openai.com/v1")
    code, results = diagnose(capsys)
    assert code == 1 and "judges add -f" in results["judge j"]["fix"]


def test_doctor_reports_unreachable_servers_without_passwords(
    capsys: pytest.CaptureFixture[str], db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUBRICSVC_BROKER_URL", f"redis://:secret@127.0.0.1:{free_port()}/0")
    monkeypatch.setenv("RUBRICSVC_URL", f"http://me:secret@127.0.0.1:{free_port()}")
    keep(db, endpoint=Endpoint(base_url=f"http://127.0.0.1:{free_port()}/v1"))
    code, results = diagnose(capsys)
    assert code == 1
    assert not results["service"]["ok"] and not results["broker"]["ok"] and not results["judge j"]["ok"]
    assert "secret" not in json.dumps(results)


def test_doctor_reports_invalid_database_urls(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("not a database, though it is long enough for its header to be looked at\n" * 20)
    for url in ("sqlite:///:memory:", f"sqlite:///{tmp_path}/text", "oracle://x"):
        monkeypatch.setenv("RUBRICSVC_DATABASE_URL", url)
        code, results = diagnose(capsys)
        assert code == 1 and results["database"]["fix"], url
