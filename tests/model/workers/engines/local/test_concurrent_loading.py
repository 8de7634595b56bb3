"""Models that several threads load at once: a run's policy, and the judge of a worker in the same process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from tests.tiny_model import tiny_model
from workers.engines.local.models import open_pretrained


def test_models_loaded_at_once_have_their_weights(tmp_path: Path) -> None:
    folder = str(tiny_model(tmp_path / "model"))
    with ThreadPoolExecutor(4) as pool:
        loaded = list(pool.map(lambda _: open_pretrained(folder, torch.float32)[0], range(8)))
    first = loaded[0].state_dict()
    for model in loaded:
        assert not any(weight.is_meta for weight in model.parameters())
        assert all(torch.equal(weight, first[name]) for name, weight in model.state_dict().items())
