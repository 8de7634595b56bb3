"""`rubricsvc doctor`: results and fixes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.cli import doctor, main
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.store import judges, migrate
from rubricsvc.store.session import Database
from tests.rows import add_worker, invalidate, submit_job
from tests.scripted_server import labels, scripted_server
from tests.services import free_port
from workers.checks.sandbox import runner as sandbox
from workers.engines.local.weights import weights_sha256


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


def test_doctor_names_missing_packages_of_checks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "sacrebleu" else object())
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox.bubblewrap_problem.cache_clear()
    try:
        code, results = diagnose(capsys)
    finally:
        sandbox.bubblewrap_problem.cache_clear()
    assert code == 0
    assert (
        "sacrebleu" in results["packages of judging"]["detail"]
        and "nltk" not in results["packages of judging"]["detail"]
    )
    assert "apt-get install bubblewrap" in results["sandbox"]["detail"]


def test_doctor_does_not_create_the_database(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUBRICSVC_DATABASE_URL", f"sqlite:///{tmp_path / 'none' / 'x.db'}")
    code, results = diagnose(capsys)
    assert (code, results["database"]["ok"]) == (0, True)
    assert not (tmp_path / "none").exists()


def test_doctor_fixes_an_old_schema_by_upgrade(capsys: pytest.CaptureFixture[str], db: Database) -> None:
    migrate.downgrade(db, "base")
    code, results = diagnose(capsys)
    assert (code, results["database"]["fix"]) == (1, "run `rubricsvc db upgrade`")
    assert "workers" not in results, "nothing was read"


@pytest.mark.parametrize("broker", ["memory://", "redis://127.0.0.1:1/0"])
def test_doctor_reports_workers(
    capsys: pytest.CaptureFixture[str], db: Database, monkeypatch: pytest.MonkeyPatch, broker: str
) -> None:
    monkeypatch.setenv("RUBRICSVC_BROKER_URL", broker)
    submit_job(db, 3, judge=Judge(name="j", model="m"))
    _, results = diagnose(capsys)
    assert results["workers"]["ok"] is (broker == "memory://") and "3 completions" in results["workers"]["detail"]
    assert "`rubricsvc worker`" in results["workers"]["fix"] or results["workers"]["ok"]
    add_worker(db)
    _, results = diagnose(capsys)
    assert results["workers"]["ok"] and results["workers"]["detail"].startswith("1 running")


def test_doctor_reports_a_stored_judge_that_is_no_longer_valid(
    capsys: pytest.CaptureFixture[str], db: Database
) -> None:
    keep(db, engine="transformers_local", model="embedded")
    invalidate(db, "j", base_url="http://api.openai.com/v1")
    code, results = diagnose(capsys)
    assert code == 1 and "judges update j" in results["judge j"]["fix"]


def test_doctor_checks_the_weights_of_an_adapter(
    capsys: pytest.CaptureFixture[str], db: Database, tmp_path: Path
) -> None:
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / name).write_bytes(b"{}")
    fields = {"adapter": str(tmp_path), "weights_sha256": weights_sha256(tmp_path)}
    keep(db, engine="transformers_local", model="embedded", **fields)
    assert diagnose(capsys)[1]["judge j"]["ok"]
    (tmp_path / "adapter_model.safetensors").write_bytes(b"other")
    code, results = diagnose(capsys)
    assert code == 1 and str(tmp_path) in results["judge j"]["detail"]


def test_doctor_reports_unreachable_servers_without_passwords(
    capsys: pytest.CaptureFixture[str], db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUBRICSVC_BROKER_URL", f"redis://:secret@127.0.0.1:{free_port()}/0")
    keep(db, endpoint=Endpoint(base_url=f"http://127.0.0.1:{free_port()}/v1"))
    code, results = diagnose(capsys)
    assert code == 1
    assert not results["broker"]["ok"]
    assert not results["judge j"]["ok"]
    assert "secret" not in json.dumps(results)


def test_doctor_lists_the_models_of_the_server(capsys: pytest.CaptureFixture[str], db: Database) -> None:
    with scripted_server(labels(Yes=1.0)) as server:
        keep(db, model="other", endpoint=Endpoint(base_url=server.url))
        code, results = diagnose(capsys)
    assert code == 1 and "scripted" in results["judge j"]["fix"]


def test_doctor_requires_torch_for_local_models_only(
    capsys: pytest.CaptureFixture[str], db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(db, engine="transformers_local", model="embedded")
    assert diagnose(capsys)[0] == 0
    monkeypatch.setattr(doctor, "find_spec", lambda _name: None)
    code, results = diagnose(capsys)
    assert (code, results["judge j"]["fix"]) == (1, "pip install 'rubricsvc[train]'")
    assert results["packages of train"]["ok"]


def test_doctor_stops_at_a_wrong_setting(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICSVC_PORT", "many")
    code, results = diagnose(capsys)
    assert (code, list(results)) == (1, ["settings"])
    assert "RUBRICSVC_PORT" in results["settings"]["detail"]


def test_doctor_reports_a_full_disk(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=40_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: usage)
    code, results = diagnose(capsys)
    assert code == 1
    assert results["disk of the database folder"]["fix"]
    assert "40 MB free" in results["disk of the database folder"]["detail"]


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "sqlite:///{here}/text", "oracle://x"])
def test_doctor_reports_invalid_database_urls(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str
) -> None:
    (tmp_path / "text").write_text("not a database, though it is long enough for its header to be looked at\n" * 20)
    monkeypatch.setenv("RUBRICSVC_DATABASE_URL", url.format(here=tmp_path))
    code, results = diagnose(capsys)
    assert code == 1
    assert results["database"]["fix"]


def test_doctor_marks_each_result_in_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICSVC_BROKER_URL", f"amqp://127.0.0.1:{free_port()}//")
    assert main.run(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("✗")] == ["✗ workers", "✗ broker"]
    assert sum(line.startswith("  → ") for line in lines) == 2
