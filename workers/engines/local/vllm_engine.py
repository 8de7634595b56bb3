"""The engine over vLLM, inside the worker's process: a model is loaded once, and all drains of the process share it.

vLLM lives in an event loop in a thread of its own, beside the loops of the drains; it computes in processes that it
spawns. What the questions of an ask share is read once by its prefix cache, and so is what asks share. How the machine
is used (``tensor_parallel_size``, ``gpu_memory_utilization``, …) is ``RUBRICSVC_VLLM_OPTIONS``; what the judge says is
the judge's, or its verdicts would not come from where their fingerprint says.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import gc
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, TypeVar

from billiard.process import current_process

from rubricsvc.core.verdict import Reason, Usage
from rubricsvc.errors import InvalidError, RubricsvcError, UnavailableError
from rubricsvc.settings import get_settings
from workers.engines.base import EngineRequest, Failure, Question, Reply, error_message
from workers.engines.local.conversation import Conversation
from workers.engines.local.models import LoadBackoff, load_error, model_path, open_tokenizer

T = TypeVar("T")
_Key = tuple[str, str | None]

_MOST_IDS = 128
"""vLLM's bound on ``logprob_token_ids``; a question whose labels have more spellings is asked again for the rest."""

_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # what commands print stays what they print
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # this process has threads
}

_ON_A_CPU = {"enforce_eager": True, "block_size": 32}
"""Compilation takes minutes there. The default block of 128 tokens leaves up to 127 of the prefix to each question."""

_CPU_CACHE_BYTES = 4 * 2**30

_OF_THE_MACHINE = frozenset(
    {
        "attention_backend",
        "block_size",
        "cpu_offload_gb",
        "cudagraph_capture_sizes",
        "data_parallel_size",
        "disable_custom_all_reduce",
        "distributed_executor_backend",
        "download_dir",
        "enable_chunked_prefill",
        "enable_expert_parallel",
        "enable_prefix_caching",
        "enforce_eager",
        "gpu_memory_utilization",
        "hf_token",
        "kv_cache_memory_bytes",
        "kv_offloading_backend",
        "kv_offloading_size",
        "master_addr",
        "master_port",
        "max_model_len",
        "max_num_batched_tokens",
        "max_num_seqs",
        "max_parallel_loading_workers",
        "nnodes",
        "node_rank",
        "num_gpu_blocks_override",
        "optimization_level",
        "performance_mode",
        "pipeline_parallel_size",
        "tensor_parallel_size",
        "trust_remote_code",
    }
)
"""Options of vLLM that are taken: they say how it computes. Of the others many say what: ``model``, ``revision``,
``tokenizer``, ``dtype``, ``quantization``, ``kv_cache_dtype``, ``hf_overrides``, ``load_format``, …"""

_MAKING = threading.Lock()
"""Drains ask from several threads, and there shall be one home."""

_GUARD = """
import os, signal, sys
sys.stdin.read()
for process in sys.argv[1:]:
    os.kill(int(process), signal.SIGKILL)
"""
"""Outlives a worker that is killed: the pipe closes, and vLLM's processes, which would keep the GPU's memory, end."""


class VllmEngine:
    """``model`` is ``embedded``, a folder or a name on the hub. It is loaded at the process's first ask for it.

    Raises:
        InvalidError: ``RUBRICSVC_VLLM_OPTIONS`` would change what the judge says.
        ModuleNotFoundError: vLLM is not installed.
        UnavailableError: this is a forked worker, in which vLLM cannot start.
    """

    def __init__(self, model: str, *, revision: str | None = None) -> None:
        _options_of_the_machine()
        if find_spec("vllm") is None:
            raise ModuleNotFoundError("no vllm", name="vllm")
        if current_process().daemon:
            raise UnavailableError("vLLM cannot start in a forked worker", hint="rubricsvc worker --pool solo")
        self._key = (model, revision)

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        return await _home().run(_home().ask(self._key, request))

    async def aclose(self) -> None:
        """The model stays, for the next drain."""


def _home() -> _Home:
    with _MAKING:
        return _the_home()


@functools.cache
def _the_home() -> _Home:
    return _Home()


class _Home:
    """The loop in which vLLM lives, and its models. All but ``run`` and ``leave`` happens in that loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._served: dict[_Key, _Served] = {}
        self._setbacks: dict[_Key, LoadBackoff] = {}
        threading.Thread(target=self._live, name="vllm", daemon=True).start()
        atexit.register(self.leave)

    def _live(self) -> None:
        # What is started from here inherits the mask: Ctrl-C is for the worker, which lets its asks finish first.
        resource_tracker.ensure_running()  # or it would lift the mask later
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self._loop.run_forever()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do ``work`` here and wait for it elsewhere; who stops waiting stops it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def leave(self) -> None:
        """Let all models go."""
        asyncio.run_coroutine_threadsafe(self._let_go(list(self._served)), self._loop).result()
        gc.collect()  # what is left of them would fail, with words, when the interpreter has gone further

    async def ask(self, key: _Key, request: EngineRequest) -> list[Reply | Failure]:
        try:
            return await self._model(key).ask(request)
        except RubricsvcError as error:
            failure = Failure(Reason.UNREACHABLE, f"{error.message}; {error.hint}" if error.hint else error.message)
        except Exception as error:  # noqa: BLE001 - an ask never raises for what a model does wrong
            failure = Failure(Reason.ENGINE_ERROR, error_message(error))
        return [failure for _ in request.questions]

    def _model(self, key: _Key) -> _Served:
        """Loading holds up this loop, in which nothing else could be done meanwhile but to wait for vLLM."""
        if key in self._served and self._served[key].engine.errored:
            self._served.pop(key).stop()
        if key not in self._served:
            with self._setbacks.setdefault(key, LoadBackoff()):
                self._served[key] = self._load(key)
        return self._served[key]

    def _load(self, key: _Key) -> _Served:
        model, revision = key
        config, conversation = _config(model, revision), Conversation(open_tokenizer(model, revision))
        try:
            return _Served.start(model, config, conversation)
        except UnavailableError:
            idle = [other for other, served in self._served.items() if not served.requests]
            if not idle:
                raise
        for other in idle:  # perhaps there was no room beside it
            self._served.pop(other).stop()
        return _Served.start(model, config, conversation)

    async def _let_go(self, keys: list[_Key]) -> None:
        for key in keys:
            self._served.pop(key).stop()


@dataclass(eq=False)
class _Served:
    """A model in vLLM. ``requests`` counts those in progress."""

    engine: Any
    conversation: Conversation
    context: int
    guard: subprocess.Popen[bytes]
    requests: int = 0

    @classmethod
    def start(cls, model: str, config: Any, conversation: Conversation) -> _Served:
        """Raises UnavailableError: there is no room for it, or vLLM cannot run it."""
        from vllm.v1.engine.async_llm import AsyncLLM

        others = set(multiprocessing.active_children())
        try:
            engine = AsyncLLM.from_vllm_config(config, disable_log_stats=True)
        except Exception as error:
            raise load_error(model, error) from error
        ours = [str(process.pid) for process in multiprocessing.active_children() if process not in others]
        guard = subprocess.Popen([sys.executable, "-c", _GUARD, *ours], stdin=subprocess.PIPE)  # noqa: S603 - our words
        return cls(engine, conversation, config.model_config.max_model_len, guard)

    def stop(self) -> None:
        self.guard.kill()
        self.guard.communicate()
        self.engine.shutdown()

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        turns = [(request.shared + question.text, *question.turns) for question in request.questions]
        rows = self.conversation.encode(request.system, turns, thinking=request.thinking)
        self.requests += 1
        try:  # together and in order, so that the first question's prefix is there for the others
            answers = [
                self._answer(request, question, row) for question, row in zip(request.questions, rows, strict=True)
            ]
            return list(await asyncio.gather(*answers))
        finally:
            self.requests -= 1

    async def _answer(self, request: EngineRequest, question: Question, row: list[int]) -> Reply | Failure:
        start = time.perf_counter()
        limit = min(self.context, request.max_context or self.context)
        if refusal := self.conversation.refusal(question, row, limit):
            return refusal
        try:
            reply = await (
                self._readout(question, row) if question.labels else self._write(request, question, row, limit)
            )
        except Exception as error:  # noqa: BLE001 - an ask never raises for what a model does wrong
            reason = Reason.UNREACHABLE if self.engine.errored else Reason.ENGINE_ERROR
            return Failure(reason, error_message(error))
        return Reply(*reply, latency_s=time.perf_counter() - start)

    async def _readout(self, question: Question, row: list[int]) -> tuple[str, dict[str, float], bool, Usage]:
        """From the output's log-probabilities: for ``prompt_logprobs`` vLLM would pass its prefix cache by."""
        ids = {label: self.conversation.label_ids(label) for label in question.labels}
        asked = sorted({number for spellings in ids.values() for number in spellings})
        found: dict[int, float] = {}
        for first in range(0, len(asked), _MOST_IDS):
            some = asked[first : first + _MOST_IDS]
            output = await self._generate(row, max_tokens=1, temperature=0.0, logprob_token_ids=some)
            found |= {number: math.exp(said.logprob) for number, said in output.outputs[0].logprobs[0].items()}
        mass = {label: math.fsum(found[number] for number in spellings) for label, spellings in ids.items()}
        return self.conversation.spelling(output.outputs[0].token_ids[0]), mass, False, _usage(output)

    async def _write(
        self, request: EngineRequest, question: Question, row: list[int], limit: int
    ) -> tuple[str, dict[str, float] | None, bool, Usage]:
        from vllm.sampling_params import StructuredOutputsParams

        how = request.sampling
        # A schema would hold the thinking to itself, too.
        schema = StructuredOutputsParams(json=question.schema) if question.schema and not request.thinking else None
        output = await self._generate(
            row,
            max_tokens=min(how.max_tokens, limit - len(row)),
            temperature=how.temperature,
            top_p=how.top_p,
            seed=None if how.seed is None else how.seed + question.sample,
            structured_outputs=schema,
        )
        text = output.outputs[0]
        return text.text, None, text.finish_reason == "length", _usage(output)

    async def _generate(self, row: list[int], **sampling: Any) -> Any:
        """The finished output; cancelling this ends vLLM's work on it."""
        from vllm import SamplingParams
        from vllm.inputs import tokens_input
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, **sampling)
        async with aclosing(self.engine.generate(tokens_input(row), params, uuid.uuid4().hex)) as outputs:
            return [output async for output in outputs][-1]


def _options_of_the_machine() -> dict[str, Any]:
    options = get_settings().vllm_options
    if wrong := sorted(options.keys() - _OF_THE_MACHINE):
        raise InvalidError(
            f"RUBRICSVC_VLLM_OPTIONS takes no {', '.join(wrong)}: the judge's fingerprint does not know of it",
            hint="leave it out; another model or revision is another judge. It takes "
            + ", ".join(sorted(_OF_THE_MACHINE)),
        )
    return options


def _config(model: str, revision: str | None) -> Any:
    """What vLLM makes of the model's files and our options.

    Raises:
        InvalidError: an option would change what the judge says.
        UnavailableError: the model cannot be fetched or read, or an option is none that this vLLM has.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from vllm import AsyncEngineArgs
    from vllm.platforms import current_platform
    from vllm.usage.usage_lib import UsageContext

    options: dict[str, Any] = {"enable_prefix_caching": True, "disable_log_stats": True, "use_tqdm_on_load": False}
    if current_platform.is_cpu():
        options |= _ON_A_CPU
        if "VLLM_CPU_KVCACHE_SPACE" not in os.environ:  # vLLM would take most of the memory
            options["kv_cache_memory_bytes"] = _CPU_CACHE_BYTES
    path = model_path(model)
    options |= {"revision": None if Path(path).is_dir() else revision} | _options_of_the_machine()
    try:
        return AsyncEngineArgs(model=path, **options).create_engine_config(UsageContext.ENGINE_CONTEXT)
    except Exception as error:
        raise load_error(model, error) from error


def _usage(output: Any) -> Usage:
    prompt, written = len(output.prompt_token_ids), len(output.outputs[0].token_ids)
    return Usage(prompt=prompt, cached=output.num_cached_tokens or 0, completion=written)
