"""Models of this process: each is loaded once and shared by all engines that name it, until the last one lets go."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from rubricsvc.errors import InvalidError, RubricsvcError, UnavailableError
from rubricsvc.settings import get_settings
from workers.engines.local.conversation import Conversation
from workers.engines.local.embedded_model import embedded_model

EMBEDDED = "embedded"
_RETRY_LOAD_S = 60.0


@dataclass(eq=False)
class Loaded:
    """A model ready to be asked. ``context`` is the longest conversation that it can read, in tokens."""

    model: Any
    conversation: Conversation
    context: int
    eos_ids: frozenset[int]


_loaded: WeakValueDictionary[tuple[str, str | None, torch.dtype, str], Loaded] = WeakValueDictionary()


def load(name: str, revision: str | None = None, dtype: torch.dtype = torch.bfloat16, device: str = "") -> Loaded:
    """The model ``name``: ``embedded``, a folder, or a name on the model hub. ``device`` defaults to CUDA, else CPU.

    Raises:
        UnavailableError: it cannot be fetched or read.
        InvalidError: it is of a kind that this engine does not run.
    """
    key = (name, revision, dtype, device or default_device())
    if (found := _loaded.get(key)) is None:
        found = _loaded[key] = _load(*key)
    return found


def default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def open_pretrained(name: str, dtype: torch.dtype, **options: Any) -> tuple[Any, Any]:
    """The causal language model ``name`` (as for ``load``) on the CPU, and its tokenizer; ``options`` as transformers'.

    Raises:
        UnavailableError: it cannot be fetched or read.
    """
    tokenizer = open_tokenizer(name, options.get("revision"))
    try:
        return AutoModelForCausalLM.from_pretrained(model_path(name), dtype=dtype, **options), tokenizer
    except (OSError, ValueError) as error:
        raise load_error(name, error) from error


def open_tokenizer(name: str, revision: str | None = None) -> Any:
    """Raises UnavailableError: it cannot be fetched or read."""
    transformers_logging.disable_progress_bar()  # ours are on the screen
    try:
        return AutoTokenizer.from_pretrained(model_path(name), revision=revision)
    except (OSError, ValueError) as error:
        raise load_error(name, error) from error


def model_path(name: str) -> str:
    """Where the model is: the embedded one is fetched if need be."""
    return str(embedded_model(get_settings().cache_dir)) if name == EMBEDDED else name


def load_error(name: str, error: Exception) -> UnavailableError:
    hint = "name `embedded`, a folder with a Hugging Face model, or a model on the hub"
    return UnavailableError(f"the model {name!r} cannot be loaded: {error}", hint=hint)


class LoadBackoff:
    """A context to load in: after a failure it refuses for a minute, so that not every ask tries again."""

    def __init__(self) -> None:
        self._until, self._why = 0.0, ""

    def __enter__(self) -> None:
        if time.monotonic() < self._until:
            raise UnavailableError(self._why)

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        if isinstance(error, RubricsvcError):
            self._until, self._why = time.monotonic() + _RETRY_LOAD_S, f"{error.message}; {error.hint}"


def end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end a reply: the tokenizer's, and those of the model's generation settings."""
    ends = getattr(model.generation_config, "eos_token_id", None)
    return frozenset({tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None})


def _load(name: str, revision: str | None, dtype: torch.dtype, device: str) -> Loaded:
    model, tokenizer = open_pretrained(name, dtype, revision=revision, attn_implementation="sdpa")
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    if kinds - {"full_attention"} or (not kinds and getattr(config, "sliding_window", None)):
        raise InvalidError(
            f"the model {name!r} does not look at its whole context in every layer, so that a prefix cannot be shared",
            hint="serve it with vLLM and use the engine openai_http",
        )
    model = model.eval().to(device)
    if dtype != torch.float32:
        model.set_output_embeddings(_Float32Head(model.get_output_embeddings()))
    ends = end_ids(model, tokenizer)
    return Loaded(model, Conversation(tokenizer), config.max_position_embeddings, ends)


class _Float32Head(torch.nn.Module):
    """The output layer in float32: in bfloat16 a logit near 20 is rounded to the next 1/8, and ties hide the answer."""

    def __init__(self, head: Any) -> None:
        super().__init__()
        self._head = head
        # A CPU takes long to widen the weights, and has room for them; a GPU does it on the way.
        self._wide = head.weight.detach().float() if head.weight.device.type == "cpu" else head.weight

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        bias = None if self._head.bias is None else self._head.bias.float()
        return torch.nn.functional.linear(hidden.float(), self._wide.float(), bias)
