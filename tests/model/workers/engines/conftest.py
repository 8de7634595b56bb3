from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def embedded() -> Path:
    """The folder of the embedded model, downloaded into the user's cache where it is missing."""
    from rubricsvc.settings import get_settings
    from workers.engines.local.embedded_model import embedded_model

    return embedded_model(get_settings().cache_dir)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny random model."""
    from tests.tiny_model import tiny_model

    return tiny_model(tmp_path_factory.mktemp("tiny"))
