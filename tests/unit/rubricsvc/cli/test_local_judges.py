"""Judges with the embedded model or an adapter; the files' weights are no tensors, since nothing is loaded."""

import json
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.cli.models import judge_from
from tests.cli import Cli, stored
from workers.engines.local.embedded_model import WHEEL_SHA256
from workers.engines.local.weights import SHIPPED, judge_with_adapter, weights_sha256

FIELDS = {"template": "readout_short", "min_answer_mass": 0.2}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "some/base"}))
    (folder / "adapter_model.safetensors").write_bytes(b"weights")
    (folder / "judge.json").write_text(json.dumps(FIELDS))
    return folder


def write(folder: Path, name: str, **content: Any) -> None:
    (folder / name).write_text(json.dumps(content))


def test_embedded_judge_has_the_shipped_adapter(capsys: pytest.CaptureFixture[str]) -> None:
    judge = judge_from("e", model="embedded")
    assert (judge.adapter, judge.weights_sha256) == ("embedded", weights_sha256(SHIPPED))
    assert (judge.model, judge.engine, judge.mode) == ("embedded", "transformers_local", "readout")
    assert judge.template == "readout_short"
    assert not capsys.readouterr().err


def test_judge_with_adapter_takes_the_fields_and_the_base_of_its_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    judge = judge_with_adapter("own", "adapter")
    assert (judge.name, judge.model, judge.template) == ("own", "some/base", "readout_short")
    assert (judge.adapter, judge.weights_sha256) == (str(folder), weights_sha256(folder))
    assert judge_with_adapter("own", "adapter", "other").model == "other"
    write(folder, "base.json", model="folder/of/base", base_sha256="0" * 64)
    assert judge_with_adapter("own", "adapter").model == "folder/of/base"
    write(folder, "base.json", base_sha256=WHEEL_SHA256)
    assert judge_with_adapter("own", "adapter").model == "embedded"


def test_add_stores_an_adapter_with_its_digest_and_follows_its_folder(cli: Cli, folder: Path) -> None:
    add = ("judges", "add", "own", "--no-probe", "--adapter")
    assert cli(*add, folder).code == 0
    first = stored(cli, "own")
    assert (first["adapter"], first["weights_sha256"]) == (str(folder), weights_sha256(folder))
    moved = folder.rename(folder.with_name("moved"))
    assert cli(*add, moved).code == 0 and stored(cli, "own") == first | {"adapter": str(moved)}
    (moved / "adapter_model.safetensors").write_bytes(b"others")
    ran = cli(*add, moved)
    assert ran.code == 2 and "another one" in ran.err


def test_add_refuses_options_that_exclude_each_other(cli: Cli) -> None:
    for args, option in (
        ("x --embedded --adapter a", "embedded"),
        ("x --adapter a --url http://127.0.0.1:9/v1", "adapter"),
        ("-f - --embedded", "embedded"),
        ("-f - --adapter a", "adapter"),
    ):
        ran = cli("judges", "add", "--no-probe", *args.split(), stdin='{"name": "x", "model": "m"}')
        assert ran.code == 2 and f"--{option}" in ran.err, args
