"""The demo from end to end with the real model, and its folder."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import typer

from rubricsvc.cli import demo
from rubricsvc.cli.demo import SIZE, open_folder, run_demo
from rubricsvc.errors import ConflictError
from rubricsvc.formats.documents import load_passport
from tests.cli import Cli, stored
from tests.made_passport import made_passport
from tests.tiny_adapter import tiny_adapter
from tests.tiny_model import tiny_model
from workers.engines.local.models import open_merged
from workers.engines.local.weights import ModelWeights, weights_sha256

TINY = dict.fromkeys(SIZE, 1) | {"group_size": 2, "held_out": 0.02}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread: tests that run in parallel would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_demo_continues_after_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, ran = tmp_path / "out", list[tuple[str, ...]]()
    run_command = demo.run_command

    def interrupted(*words: str) -> None:
        ran.append(words[:2])
        if words[:2] == ("runs", "start"):
            raise KeyboardInterrupt
        run_command(*words)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(demo, "run_command", interrupted)
        run_demo(out, TINY, 3)
    assert ran == [("collections", "add"), ("prompts", "synthesize"), ("judges", "add"), ("runs", "start")]
    capsys.readouterr()

    monkeypatch.setenv("RUBRICSVC_DATABASE_URL", "sqlite:////nowhere/else.db")
    monkeypatch.setenv("RUBRICSVC_URL", "http://127.0.0.1:9")
    run_demo(out, TINY, 3, as_json=True)
    printed = capsys.readouterr()
    assert "$ rubricsvc collections add" not in printed.err
    names = {one.get("step", one.get("name")) for one in map(json.loads, printed.out.splitlines())}
    assert {0, 1} <= names
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    assert not list(out.rglob("optimizer.safetensors"))

    run_demo(out, TINY, 3)
    assert capsys.readouterr().err.count("$ rubricsvc") == 1, "only the evaluations are shown again"


def test_run_command_fails_with_the_code_of_the_command() -> None:
    with pytest.raises(typer.Exit) as caught:
        demo.run_command("runs", "show", "nowhere")
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(("size", "seed"), [(TINY, 1), (SIZE, 2)])
def test_open_folder_refuses_another_demo(tmp_path: Path, size: dict[str, float], seed: int) -> None:
    assert not open_folder(tmp_path, SIZE, 1) and open_folder(tmp_path, SIZE, 1)
    with pytest.raises(ConflictError) as caught:
        open_folder(tmp_path, size, seed)
    assert "--out" in caught.value.hint


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
