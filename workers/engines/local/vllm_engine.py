"""The engine over vLLM, inside the worker's process: a model is loaded once and shared by all drains of the process.

vLLM runs in an event loop in a thread of its own and computes in processes that it spawns. Its prefix cache computes
once what the questions of a request, and requests, have in common. ``RUBRICSVC_VLLM_OPTIONS`` has the options of the
machine (``tensor_parallel_size``, ``gpu_memory_utilization``, …). Options that change verdicts are the judge's, which
its fingerprint covers.
"""

from __future__ import annotations

import asyncio
import atexit
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
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from billiard.process import current_process

from rubricsvc.core.fingerprint import digest
from rubricsvc.core.verdict import Reason, Usage
from rubricsvc.errors import InvalidError, UnavailableError
from rubricsvc.settings import get_settings
from workers.engines.base import EngineRequest, Failure, Question, Replies, Reply, error_message
from workers.engines.local import models
from workers.engines.local.conversation import Conversation
from workers.engines.local.embedded_model import stored_once
from workers.engines.local.weights import ModelWeights, check_sha256
from workers.reasoning import reply_texts

_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # stdout is for the output of commands
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # this process has threads
}

_CPU_OPTIONS = {"enforce_eager": True, "block_size": 32}
"""Compilation takes minutes. The default block of 128 tokens recomputes up to 127 of the prefix for each question."""

_CPU_CACHE_BYTES = 4 * 2**30

_MACHINE_OPTIONS = """
attention_backend block_size cpu_offload_gb cudagraph_capture_sizes data_parallel_size disable_custom_all_reduce
distributed_executor_backend download_dir enable_chunked_prefill enable_expert_parallel enable_prefix_caching
enforce_eager gpu_memory_utilization hf_token kv_cache_memory_bytes kv_offloading_backend kv_offloading_size
master_addr master_port max_model_len max_num_batched_tokens max_num_seqs max_parallel_loading_workers nnodes node_rank
num_gpu_blocks_override optimization_level performance_mode pipeline_parallel_size tensor_parallel_size
trust_remote_code
"""
"""The accepted options of vLLM, which do not change verdicts. Many others do: ``model``, ``revision``, ``tokenizer``,
``dtype``, ``quantization``, ``kv_cache_dtype``, ``hf_overrides``, ``load_format``, …"""

_GUARD = """
import os, signal, sys
sys.stdin.read()
for process in sys.argv[1:]:
    os.kill(int(process), signal.SIGKILL)
"""
"""Kills vLLM's processes, which would keep the GPU's memory, when the pipe of a killed worker closes."""


class VllmEngine:
    """A model in vLLM, loaded at the first request of the process; of an adapter the merged weights in the cache."""

    def __init__(self, weights: ModelWeights) -> None:
        machine_options()
        if find_spec("vllm") is None:
            raise ModuleNotFoundError("no vllm", name="vllm")
        if current_process().daemon:
            hint = "start it with `rubricsvc worker --pool solo`"
            raise UnavailableError("vLLM cannot start in a forked worker", hint=hint)
        self._weights = weights

    async def ask(self, request: EngineRequest) -> Replies:
        """Return one reply or failure for each question, in order, from the model of this process.

        It answers in the loop of its runtime. Cancelling the caller cancels the work.
        """
        with _lock:  # drains run in several threads
            if not _runtimes:
                _runtimes.append(_Runtime())
        runtime = _runtimes[0]
        answer = asyncio.run_coroutine_threadsafe(runtime.answer(self._weights, request), runtime.loop)
        return await asyncio.wrap_future(answer)

    async def aclose(self) -> None:
        """Do nothing: the model stays for the next drain."""


_lock = threading.Lock()
_runtimes: list[_Runtime] = []


class _Runtime:
    """The event loop of vLLM and its models. All methods except ``shutdown`` run in that loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.models: dict[ModelWeights, _Model] = {}
        self._failures: dict[ModelWeights, tuple[float, str]] = {}
        # Child processes inherit the mask: Ctrl-C is for the worker, which finishes its requests first.
        self.loop.call_soon(resource_tracker.ensure_running)  # it would reset the mask later
        self.loop.call_soon(signal.pthread_sigmask, signal.SIG_BLOCK, {signal.SIGINT})
        threading.Thread(target=self.loop.run_forever, name="vllm", daemon=True).start()
        atexit.register(self.shutdown)

    def shutdown(self) -> None:
        """Unload all models."""

        async def unload() -> None:
            while self.models:
                self.models.popitem()[1].stop()

        asyncio.run_coroutine_threadsafe(unload(), self.loop).result()
        gc.collect()  # finalizers would print errors later in the interpreter's shutdown

    async def answer(self, key: ModelWeights, request: EngineRequest) -> Replies:
        """Return the replies of a model, or why it cannot be loaded."""
        try:
            model = self._model(key)
            pairs = zip(request.questions, model.conversation.encode(request), strict=True)
            model.requests += 1
            try:  # together and in order, so that the first question's prefix is cached for the others
                return list(await asyncio.gather(*(_answer(model, request, question, ids) for question, ids in pairs)))
            finally:
                model.requests -= 1
        except Exception as error:  # noqa: BLE001 - an engine never raises for errors of a model
            return [models.model_failure(error) for _ in request.questions]

    def _model(self, key: ModelWeights) -> _Model:
        """Return the model. Loading blocks this loop, which serves vLLM only."""
        if key in self.models and self.models[key].engine.errored:
            self.models.pop(key).stop()
        if key not in self.models:
            with models.load_backoff(self._failures, key):
                model, revision = key.model, key.revision
                if key.adapter:
                    what = f"the merged model of {key.model} and {key.adapter}"
                    name = digest(key.model, key.revision, key.sha256 or key.adapter)
                    merged = get_settings().cache_dir / "merged" / name
                    model, revision = str(stored_once(merged, partial(models.write_merged, weights=key), what)), None
                else:
                    check_sha256(models.model_folder(key), key.sha256)
                config, conversation = _config(model, revision), Conversation(models.open_tokenizer(model, revision))
                try:
                    self.models[key] = _Model.start(model, config, conversation)
                except UnavailableError:
                    idle = [other for other, loaded in self.models.items() if not loaded.requests]
                    if not idle:
                        raise
                    for other in idle:  # the memory may be too small for both
                        self.models.pop(other).stop()
                    self.models[key] = _Model.start(model, config, conversation)
        return self.models[key]


@dataclass(eq=False)
class _Model:
    """A model in vLLM. ``requests`` counts those in progress."""

    engine: Any
    conversation: Conversation
    context: int
    guard: subprocess.Popen[bytes]
    requests: int = 0

    @classmethod
    def start(cls, model: str, config: Any, conversation: Conversation) -> _Model:
        from vllm.v1.engine.async_llm import AsyncLLM

        others = set(multiprocessing.active_children())
        with models.loading(model):
            engine = AsyncLLM.from_vllm_config(config, disable_log_stats=True)
        ours = [str(process.pid) for process in multiprocessing.active_children() if process not in others]
        guard = subprocess.Popen([sys.executable, "-c", _GUARD, *ours], stdin=subprocess.PIPE)  # noqa: S603 - fixed arguments
        return cls(engine, conversation, config.model_config.max_model_len, guard)

    def stop(self) -> None:
        self.guard.kill()
        self.guard.communicate()
        self.engine.shutdown()


async def _answer(loaded: _Model, request: EngineRequest, question: Question, ids: list[int]) -> Reply | Failure:
    """Return the reply to one question, whose conversation is ``ids``. Cancelling this ends vLLM's work on it."""
    from vllm import SamplingParams
    from vllm.inputs import tokens_input
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    start, sampling = time.perf_counter(), request.sampling
    limit = min(loaded.context, request.max_context or loaded.context)
    if failure := loaded.conversation.check(question, ids, limit):
        return failure
    by_label = {label: loaded.conversation.label_ids(label) for label in question.labels}
    try:
        if question.labels:  # of the output: ``prompt_logprobs`` would bypass the prefix cache
            tokens = sorted({token for spellings in by_label.values() for token in spellings})
            options: dict[str, Any] = {"max_tokens": 1, "temperature": 0.0, "logprob_token_ids": tokens}
        else:
            options = {"max_tokens": min(sampling.max_tokens, limit - len(ids)), "top_p": sampling.top_p}
            options["temperature"] = sampling.temperature
            options["seed"] = None if sampling.seed is None else sampling.seed + question.sample
            if question.schema and not request.thinking:  # it would apply to the thinking, too
                options["structured_outputs"] = StructuredOutputsParams(json=question.schema)
        params = SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, **options)
        async with aclosing(loaded.engine.generate(tokens_input(ids), params, uuid.uuid4().hex)) as outputs:
            output = [one async for one in outputs][-1]
        first, prompt, cached = output.outputs[0], len(output.prompt_token_ids), output.num_cached_tokens
        usage = Usage(prompt=prompt, cached=cached, completion=len(first.token_ids))
        if question.labels:
            listed = first.logprobs[0]
            mass = {label: sum(math.exp(listed[token].logprob) for token in by_label[label]) for label in by_label}
            reply = Reply(loaded.conversation.tokenizer.decode([first.token_ids[0]]), mass, usage=usage)
        else:
            (text,) = reply_texts(
                loaded.conversation.tokenizer, [first.token_ids[: -1 if first.finish_reason == "stop" else None]]
            )
            reply = Reply(text, truncated=first.finish_reason == "length", usage=usage)
        return replace(reply, latency_s=time.perf_counter() - start)
    except Exception as error:  # noqa: BLE001 - an engine never raises for errors of a model
        return Failure(Reason.UNREACHABLE if loaded.engine.errored else Reason.ENGINE_ERROR, error_message(error))


def machine_options() -> dict[str, Any]:
    """Return ``RUBRICSVC_VLLM_OPTIONS``, none of which may change verdicts."""
    options = get_settings().vllm_options
    if wrong := sorted(options.keys() - _MACHINE_OPTIONS.split()):
        raise InvalidError(
            f"RUBRICSVC_VLLM_OPTIONS has {', '.join(wrong)}, which may change verdicts and is not in the fingerprint",
            hint=f"remove it; allowed: {', '.join(_MACHINE_OPTIONS.split())}",
        )
    return options


def _config(model: str, revision: str | None) -> Any:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from vllm import AsyncEngineArgs
    from vllm.platforms import current_platform
    from vllm.usage.usage_lib import UsageContext

    options: dict[str, Any] = {"enable_prefix_caching": True, "disable_log_stats": True, "use_tqdm_on_load": False}
    if current_platform.is_cpu():
        options |= _CPU_OPTIONS
        if "VLLM_CPU_KVCACHE_SPACE" not in os.environ:  # vLLM's default is most of the memory
            options["kv_cache_memory_bytes"] = _CPU_CACHE_BYTES
    path = models.model_path(model)
    options |= {"revision": None if Path(path).is_dir() else revision} | machine_options()
    with models.loading(model):
        return AsyncEngineArgs(model=path, **options).create_engine_config(UsageContext.ENGINE_CONTEXT)
