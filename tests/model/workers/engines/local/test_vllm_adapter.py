"""vLLM with a LoRA adapter: in a process of its own, so that no other test's model is in memory."""

import asyncio
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.tiny_adapter import tiny_adapter
from workers.engines.base import EngineRequest, Question, Reply
from workers.engines.local.transformers_engine import TransformersEngine
from workers.engines.local.weights import ModelWeights, weights_sha256

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed here: make test-vllm"),
]

REQUEST = EngineRequest("You grade answers.", "Paris is in France. ", (Question("Is it true?", ("Yes", "No")),))
_PROGRAM = """
import asyncio, json, sys
from tests.model.workers.engines.local.test_vllm_adapter import REQUEST
from workers.engines.local.vllm_engine import VllmEngine
from workers.engines.local.weights import ModelWeights

if __name__ == "__main__":
    model, adapter, sha256 = sys.argv[1:]
    (reply,) = asyncio.run(VllmEngine(ModelWeights(model, adapter=adapter, sha256=sha256)).ask(REQUEST))
    print(json.dumps(reply.label_mass))
"""


def test_vllm_answers_with_the_merged_weights(embedded: Path, tmp_path: Path) -> None:
    adapter = tiny_adapter(embedded, tmp_path / "adapter", r=2, lora_alpha=4, target_modules=["v_proj"])
    sha256 = weights_sha256(adapter)
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    cache = {"RUBRICSVC_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(Path(__file__).parents[5])}
    command = [sys.executable, str(program), str(embedded), str(adapter), sha256]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | cache)
    (merged,) = (path for path in (tmp_path / "cache" / "merged").iterdir() if path.is_dir())
    assert (merged / "model.safetensors").is_file()
    engines = [
        TransformersEngine(ModelWeights(str(embedded), adapter=str(adapter), sha256=sha256), device="cpu"),
        TransformersEngine(ModelWeights(str(embedded)), device="cpu"),
    ]
    ((judge,), (bare,)) = [asyncio.run(engine.ask(REQUEST)) for engine in engines]
    assert isinstance(judge, Reply) and isinstance(bare, Reply)
    assert json.loads(ran.stdout) == pytest.approx(judge.label_mass, abs=0.02)
    assert judge.label_mass != pytest.approx(bare.label_mass, abs=0.04)
