"""Judges with an adapter of a tiny random model, from the command line to a served folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from rubricsvc.formats.documents import load_passport
from tests.cli import Cli, stored
from tests.made_passport import made_passport
from tests.tiny_adapter import tiny_adapter
from tests.tiny_model import tiny_model
from workers.engines.local.models import open_merged
from workers.engines.local.weights import ModelWeights, weights_sha256


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return tiny_adapter(tiny_model(tmp_path / "base"), tmp_path / "adapter")


def test_merge_writes_a_folder_that_loads_as_the_judge(cli: Cli, adapter: Path, tmp_path: Path) -> None:
    passport = made_passport().model_copy(update={"weights_sha256": weights_sha256(adapter)})
    base = passport.base.model_copy(update={"sha256": weights_sha256(tmp_path / "base")})
    (adapter / "passport.json").write_text(passport.model_copy(update={"base": base}).model_dump_json())
    ran = cli("judges", "add", "own", "--adapter", adapter)
    assert ran.code == 0, ran.err
    judge = stored(cli, "own")
    assert judge["model"] == str(tmp_path / "base")
    out = tmp_path / "merged"
    assert cli("judges", "merge", "own", "--out", out).code == 0
    assert len({path.stat().st_mode for path in out.iterdir()}) == 1  # another user's server can read them
    expected, _ = open_merged(
        ModelWeights(judge["model"], None, judge["adapter"], judge["weights_sha256"]), torch.float32
    )
    weights, tokenizer = open_merged(ModelWeights(str(out)), torch.float32)
    assert tokenizer.chat_template
    assert load_passport(out / "passport.json").base == base
    for name, weight in expected.state_dict().items():
        torch.testing.assert_close(weights.state_dict()[name], weight)
    assert cli("judges", "merge", "own", "--out", out).code == 2


def test_add_refuses_an_adapter_that_cannot_be_loaded(cli: Cli, adapter: Path) -> None:
    (adapter / "base.json").write_text(json.dumps({"model": str(adapter.parent / "base"), "base_sha256": "0" * 64}))
    ran = cli("judges", "add", "own", "--adapter", adapter)
    assert ran.code == 3 and "0" * 64 in ran.err and "hint: " in ran.err
    assert cli("judges", "list", "--json").out == ""
