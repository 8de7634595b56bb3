"""vLLM's OpenAI server, by default with the embedded model, for as long as a block runs, and what its metrics count."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.services import free_port
from workers.engines.local.models import model_path

NAME = "smollm2"
SAMPLES_FOR_TRAINING = (
    "--logprobs-mode=processed_logprobs",
    '--hf-overrides={"tie_word_embeddings": false}',
    '--model-loader-extra-config={"enable_weights_track": false}',
)
"""Options of a server on a CPU that samples completions of a run (docs/training.md)."""
_LONGEST_START_S = 900
_COUNTERS = {
    "prompt": r"vllm:prompt_tokens_total\{.*?\} (\S+)",
    "served": r"vllm:prefix_cache_hits_total\{.*?\} (\S+)",
    "written": r"vllm:generation_tokens_total\{.*?\} (\S+)",
}


@dataclass(frozen=True)
class Tokens:
    """``served`` of the ``prompt`` tokens came out of the prefix cache; the others were computed."""

    prompt: int
    served: int
    written: int

    def __sub__(self, before: Tokens) -> Tokens:
        return Tokens(self.prompt - before.prompt, self.served - before.served, self.written - before.written)

    @property
    def computed(self) -> int:
        return self.prompt - self.served


@dataclass(frozen=True)
class Server:
    root: str

    @property
    def base_url(self) -> str:
        return f"{self.root}/v1"

    def tokens(self) -> Tokens:
        """All that were counted so far, in all requests that have ended."""
        with urllib.request.urlopen(f"{self.root}/metrics") as response:
            text = response.read().decode()
        return Tokens(**{name: int(sum(map(float, re.findall(line, text)))) for name, line in _COUNTERS.items()})

    def forget(self) -> None:
        """Empty the prefix cache."""
        request = urllib.request.Request(f"{self.root}/reset_prefix_cache", method="POST")
        for _ in range(100):  # it stays as it is while a request is under way
            with urllib.request.urlopen(request) as response:
                if response.status == 200:
                    return
            time.sleep(0.1)
        raise RuntimeError("vLLM does not empty its prefix cache")


@contextmanager
def vllm_server(
    *,
    block_size: int,
    reply_tokens: int,
    threads: int,
    model: str = "embedded",
    gpu_share: float | None = None,
    cache_gib: int = 4,
    options: Sequence[str] = (),
) -> Iterator[Server]:
    """Replies are greedy and have at most ``reply_tokens`` unless a request says otherwise; ``options`` are vLLM's.

    On a CPU ``block_size`` is a multiple of 32, and the cache of prefixes has ``cache_gib``. On a GPU the server takes
    ``gpu_share`` of its memory.
    """
    port = free_port()
    defaults = {"temperature": 0.0, "max_new_tokens": reply_tokens}
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--port", str(port), "--host", "127.0.0.1"]
    command += ["--model", model_path(model), "--served-model-name", NAME]
    command += ["--enforce-eager"] if gpu_share is None else ["--gpu-memory-utilization", str(gpu_share)]
    command += ["--block-size", str(block_size), "--override-generation-config", json.dumps(defaults)]
    command += options
    environment = {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else it keeps a core free of arithmetic
        "VLLM_CPU_KVCACHE_SPACE": str(cache_gib),
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "1",  # for /reset_prefix_cache
    }
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "vllm.log"
        with said.open("wb") as log:
            process = subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=log)
        try:
            root = f"http://127.0.0.1:{port}"
            _wait(process, root, said)
            yield Server(root)
        finally:
            process.terminate()
            process.wait(60)


def _wait(process: subprocess.Popen[bytes], root: str, said: Path) -> None:
    until = time.monotonic() + _LONGEST_START_S
    while process.poll() is None and time.monotonic() < until:
        try:
            urllib.request.urlopen(f"{root}/health").close()
            return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError(f"vLLM did not start: {said.read_text(errors='replace')[-3000:]}")
