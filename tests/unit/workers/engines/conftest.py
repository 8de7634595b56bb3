from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny random model."""
    from tests.tiny_model import tiny_model

    return tiny_model(tmp_path_factory.mktemp("tiny"))
