"""The models of this process: each is loaded once and shared by its engines until the last one releases it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import cached_file
from transformers.utils import logging as transformers_logging

from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError, RubricsvcError, UnavailableError
from rubricsvc.settings import get_settings
from workers.engines.base import Failure, error_message
from workers.engines.local.adapters import read_adapter
from workers.engines.local.conversation import Conversation
from workers.engines.local.embedded_model import EMBEDDED, embedded_model
from workers.engines.local.weights import ModelWeights, check_sha256, copy_permissions

_ONE_AT_A_TIME = threading.Lock()
"""transformers loads under settings of the whole process: of two at once, one may get weights without data."""

_RETRY_LOAD_S = 60.0


@dataclass(eq=False)
class LoadedModel:
    """A model in memory. ``context`` is its longest conversation in tokens, ``eos_ids`` the tokens that end a reply."""

    model: Any
    conversation: Conversation
    context: int
    eos_ids: frozenset[int]


_loaded: WeakValueDictionary[tuple[ModelWeights, torch.dtype, str], LoadedModel] = WeakValueDictionary()


def load(weights: ModelWeights, dtype: torch.dtype | None = None, device: str = "") -> LoadedModel:
    """Load a model, its adapter merged, or return the one that is in memory; by default with `default_dtype`."""
    device = device or default_device()
    dtype = dtype or getattr(torch, default_dtype(device))
    key = (weights, dtype, device)
    if (loaded := _loaded.get(key)) is not None:
        return loaded
    model, tokenizer = open_merged(weights, dtype, attn_implementation="sdpa")
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    if kinds - {"full_attention"} or (not kinds and getattr(config, "sliding_window", None)):
        message = f"the model {weights.model!r} has layers without full attention, whose prefix cannot be shared"
        hint = "serve it with vLLM, and use the engine openai_http"
        raise InvalidError(message, hint=hint)
    model = model.eval().to(device)
    if dtype != torch.float32:
        model.set_output_embeddings(_Float32Head(model.get_output_embeddings()))
    ends = end_ids(model, tokenizer)
    return _loaded.setdefault(key, LoadedModel(model, Conversation(tokenizer), config.max_position_embeddings, ends))


def default_device() -> str:
    """Return ``cuda`` where there is a GPU, else ``cpu``."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def default_dtype(device: str = "") -> str:
    """Return bfloat16 for GPUs and CPUs with AMX, else float32, by name.

    A Xeon with AVX-512 for bfloat16, but without AMX, multiplied its matrices at half of the speed of float32 ones, and
    an EPYC with AVX2 at an eighth (torch 2.13).
    """
    is_cpu = (device or default_device()).startswith("cpu")
    return "float32" if is_cpu and not torch.cpu._is_amx_tile_supported() else "bfloat16"


def open_merged(weights: ModelWeights, dtype: torch.dtype | str, **options: Any) -> tuple[Any, Any]:
    """Return a model on the CPU, its adapter merged, and its tokenizer; see `load` and `open_pretrained`."""
    lora = read_adapter(weights.adapter, weights.sha256) if weights.adapter else None
    model, tokenizer = open_pretrained(weights.model, dtype, revision=weights.revision, **options)
    if lora is None:
        check_sha256(model_folder(weights), weights.sha256)
    else:
        lora.merge_into(model, weights.model, model_folder(weights))
    return model, tokenizer


def open_pretrained(name: str, dtype: torch.dtype | str, **options: Any) -> tuple[Any, Any]:
    """Return a causal language model on the CPU, and its tokenizer; ``options`` are those of ``from_pretrained``."""
    tokenizer = open_tokenizer(name, options.get("revision"))
    with loading(name), _ONE_AT_A_TIME:
        return AutoModelForCausalLM.from_pretrained(model_path(name), dtype=dtype, **options), tokenizer


def open_tokenizer(name: str, revision: str | None = None) -> Any:
    """Return the tokenizer of the model ``name``."""
    transformers_logging.disable_progress_bar()  # commands show their own
    logging.getLogger("huggingface_hub").handlers.clear()  # its warnings reach the root logger, and appeared twice
    with loading(name):
        return AutoTokenizer.from_pretrained(model_path(name), revision=revision)


def model_path(name: str) -> str:
    """Return the folder or hub name of a model; the embedded one is fetched where it is missing."""
    return str(embedded_model(get_settings().cache_dir)) if name == EMBEDDED else name


def model_folder(weights: ModelWeights) -> Path:
    """Return the folder of a model; of one on the hub, that of its files in the hub's cache."""
    path = Path(model_path(weights.model))
    if path.is_dir():
        return path
    with loading(weights.model):
        return Path(cached_file(weights.model, "config.json", revision=weights.revision)).parent


@contextmanager
def loading(name: str) -> Iterator[None]:
    """Turn the errors of libraries into an `UnavailableError` of the model ``name``."""
    try:
        yield
    except RubricsvcError:
        raise
    except Exception as error:
        hint = "use `embedded`, a folder with a Hugging Face model, or a model on the hub"
        raise UnavailableError(f"cannot load the model {name!r}: {error}", hint=hint) from error


def model_failure(error: Exception) -> Failure:
    """Return the failure of a question whose model could not be loaded, or raised ``error``."""
    if isinstance(error, RubricsvcError):
        return Failure(Reason.UNREACHABLE, f"{error.message}; {error.hint}" if error.hint else error.message)
    return Failure(Reason.ENGINE_ERROR, error_message(error))


@contextmanager
def load_backoff(failures: dict[ModelWeights, tuple[float, str]], weights: ModelWeights) -> Iterator[None]:
    """Give a context for loading: after a failure it repeats the error for a minute instead of loading again.

    ``failures`` has the time until which it does so, and the error.
    """
    until, message = failures.get(weights, (0.0, ""))
    if time.monotonic() < until:
        raise UnavailableError(message)
    try:
        yield
    except RubricsvcError as error:
        failures[weights] = time.monotonic() + _RETRY_LOAD_S, model_failure(error).detail
        raise


def end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the tokens that end a reply: the tokenizer's, and those of the model's generation settings."""
    ends = getattr(model.generation_config, "eos_token_id", None)
    return frozenset({tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None})


class _Float32Head(torch.nn.Module):
    """The output layer in float32: in bfloat16 a logit near 20 is rounded to the next 1/8, which makes ties."""

    def __init__(self, head: Any) -> None:
        super().__init__()
        self._head = head
        # A CPU is slow to convert the weights, and has the memory; a GPU converts them in each call.
        self._wide = head.weight.detach().float() if head.weight.device.type == "cpu" else head.weight

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        bias = None if self._head.bias is None else self._head.bias.float()
        return torch.nn.functional.linear(hidden.float(), self._wide.float(), bias)


def write_merged(out: Path, weights: ModelWeights) -> None:
    """Write a base with its adapter merged, in the type that it is stored in, and its tokenizer into a folder."""
    merged, tokenizer = open_merged(weights, "auto")
    merged.save_pretrained(out)
    tokenizer.save_pretrained(out)
    copy_permissions(out)
