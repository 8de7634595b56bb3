from hashlib import sha256
from pathlib import Path

import pytest

from rubricsvc.errors import UnavailableError
from workers.engines.local.embedded_model import WHEEL_SHA256
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
