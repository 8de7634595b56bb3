"""The demo from end to end with the real model, and its folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import typer

from rubricsvc.cli import demo
from rubricsvc.cli.demo import FAST, FULL, open_folder, run_demo
from rubricsvc.errors import ConflictError

TINY = dict.fromkeys(FAST, 1) | {"group_size": 2, "held_out": 0.02}


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


@pytest.mark.parametrize(("size", "seed"), [(FULL, 1), (FAST, 2)])
def test_open_folder_refuses_another_demo(tmp_path: Path, size: dict[str, float], seed: int) -> None:
    assert not open_folder(tmp_path, FAST, 1)
    assert open_folder(tmp_path, FAST, 1)
    with pytest.raises(ConflictError) as caught:
        open_folder(tmp_path, size, seed)
    assert "--out" in caught.value.hint
