"""``local_only`` of a run: what is on this machine or in a named network passes, everything else is named."""

from __future__ import annotations

from typing import Any

import pytest

from rubricsvc.errors import InvalidError
from rubricsvc.settings import read_settings
from trainer.config import RunConfig
from trainer.run import check_local

LOCAL = {"name": "here", "model": "m", "endpoint": {"base_url": "http://127.0.0.1:8000/v1"}}
FAR = {"name": "far", "model": "m", "endpoint": {"base_url": "http://10.1.2.3:8000/v1"}}
ENVIRONMENT = {"environment": {"name": "mcp"}}


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def run(**fields: Any) -> RunConfig:
    given = {"steps": 1, "out": "x", "data": {"path": "x"}, "judge": LOCAL, "local_only": True, **fields}
    return RunConfig.model_validate(given)


def panel(*members: dict[str, Any]) -> dict[str, Any]:
    return {"name": "panel", "mode": "panel", "engine": "none", "members": list(members)}


def test_local_run_passes() -> None:
    cases = [
        {},
        {"judge": "stored"},
        {"judge": {"name": "e", "engine": "transformers_local", "model": "embedded"}},
        {"judge": {**LOCAL, "endpoint": {"base_url": "http://localhost:8000/v1"}}},
        {"judge": {**LOCAL, "endpoint": {"base_url": "http://[::1]:8000/v1"}}},
        {"judge": FAR, "local_networks": ["10.0.0.0/8"]},
        {"judge": FAR, "local_only": False},
        {**ENVIRONMENT, "tools": {"mcp": [{"name": "t", "url": "http://127.0.0.1:1/mcp"}]}},
        {**ENVIRONMENT, "tools": {"mcp": [{"name": "t", "command": ["serve"]}]}},
        {"trackers": ["tensorboard"]},
    ]
    for fields in cases:
        check_local(run(**fields))


def test_run_that_leaves_the_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [
        ({"judge": FAR}, "'far'"),
        ({"judge": FAR, "local_networks": ["192.168.0.0/16"]}, "10.1.2.3"),
        ({"judge": {"name": "openai", "model": "m"}}, "api.openai.com"),
        ({"judge": panel(LOCAL, FAR)}, "'far'"),
        ({"judge": {"name": "s", "service": "http://10.0.0.1:8321"}}, "'s'"),
        ({"judge": {"name": "own", "engine": "somewhere", "model": "m"}}, "'own'"),
        ({"eval": {"share": 0.5, "judges": [FAR]}}, "'far'"),
        ({"evolve": {"proposer": FAR}}, "'far'"),
        ({"sampling": {"server": "http://10.0.0.1:8000/v1"}}, "sampling.server"),
        ({**ENVIRONMENT, "tools": {"mcp": [{"name": "wiki", "url": "http://10.0.0.1/mcp"}]}}, "'wiki'"),
        ({"trackers": ["wandb"]}, "'wandb'"),
        ({"judge": {**LOCAL, "endpoint": {"base_url": "http://no-such-host.invalid/v1"}}}, "no-such-host.invalid"),
    ]
    for fields, named in cases:
        for name in ("WANDB_MODE", "WANDB_BASE_URL"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(InvalidError) as caught:
            check_local(run(**fields))
        assert caught.value.path == "local_only"
        assert named in caught.value.message


def test_proxy_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("http_proxy", "http://10.9.9.9:3128")
    with pytest.raises(InvalidError) as caught:
        check_local(run())
    assert "10.9.9.9" in caught.value.message


def test_project_may_be_local_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICSVC_LOCAL_ONLY", "true")
    monkeypatch.setattr("trainer.run.get_settings", read_settings)
    with pytest.raises(InvalidError, match="'far'"):
        check_local(run(judge=FAR, local_only=False))
    monkeypatch.setenv("RUBRICSVC_LOCAL_NETWORKS", '["10.0.0.0/8"]')
    check_local(run(judge=FAR, local_only=False))
