"""Sizes that cannot work, found before any weights are loaded: all at once, each with what would fit.

Only the model's configuration and its tokenizer are read.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rubricsvc.errors import InvalidError
from trainer.config import TrainConfig
from trainer.data.tasks import Task, names_of
from trainer.policies.policy import Acting, context_of
from trainer.policies.tokens import prompt_ids
from workers.engines.local.models import default_device, loading, model_path, open_tokenizer

MASTER_BYTES = 16
"""Bytes a weight of the optimiser: the float32 copy, its gradient and Adam's two moments."""
SAVED_BYTES = 12
"""Of these, the bytes that a checkpoint has."""
GB = 1e9


class Memory(NamedTuple):
    """Bytes that weights, copies and optimiser take, without activations, and the bytes of the device."""

    needed: float
    available: float
    device: str


def check_sizes(config: TrainConfig, tasks: Sequence[Task], acting: Acting | None = None) -> Memory:
    """Check that all prompts, held-out ones included, and the policy's training fit; return the memory it takes.

    With ``acting`` a prompt has the descriptions of the tools, and a completion is an episode.
    """
    with loading(config.policy.model):
        model = AutoConfig.from_pretrained(model_path(config.policy.model))
        with torch.device("meta"):
            weights = sum(param.numel() for param in AutoModelForCausalLM.from_config(model).parameters())
    copies = 2 if config.optim.kl_beta or config.optim.kl_every or config.algorithm != "grpo" else 1
    device = config.policy.device or default_device()
    check_device(device)
    memory = Memory(weights * (MASTER_BYTES + _weight_bytes(config) * copies), _memory_of(device), device)
    problems = [*_prompt_problems(config, tasks, context_of(model), acting), *_memory_problems(weights, memory)]
    if config.out is not None:
        problems += _disk_problems(config, weights, config.out)
    if problems:
        raise InvalidError("\n".join(problems), hint="change the named settings", path="policy.model")
    return memory


def _prompt_problems(
    config: TrainConfig, tasks: Iterable[Task], context: float, acting: Acting | None
) -> Iterator[str]:
    name, new = "sampling.max_new_tokens", config.sampling.max_new_tokens
    if acting is not None:
        name, new = "environment.max_tokens", acting.max_tokens
    if new >= context:
        yield f"{name}: {new} of a context of {context:.0f} tokens; at most {context - 1:.0f} fit"
        return
    tokenizer = open_tokenizer(config.policy.model)
    tools = acting.tools if acting else ()
    lengths = {task.prompt.digest: (len(prompt_ids(tokenizer, task.prompt, tools)), task) for task in tasks}
    long = [(length, task) for length, task in lengths.values() if length + new > context]
    if long:
        longest = max(length for length, _ in long)
        fits = context - longest
        change = f"at most {fits:.0f} fit" if fits >= 1 else f"the longest prompt alone has {longest} tokens"
        prompts = f"{len(long)} of {len(lengths)} prompts"
        yield (
            f"{name}: {new} beside {prompts} in a context of {context:.0f} tokens; {change} "
            f"({names_of([task for _, task in long])})"
        )


def _memory_problems(weights: int, memory: Memory) -> Iterator[str]:
    if memory.needed > memory.available:
        fits = memory.available * weights / memory.needed
        yield (
            f"policy.model: {weights / GB:.2f} billion weights take {_size(memory.needed)} to train "
            f"on {memory.device}, which has {_size(memory.available)}; at most {fits / GB:.2f} billion fit"
        )


def _weight_bytes(config: TrainConfig) -> int:
    return 2 if config.policy.dtype == "bfloat16" else 4


def check_device(device: str) -> None:
    """Check that torch can use a device."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        message = f"device {device!r} cannot be used: {str(error).splitlines()[0]}"
        raise InvalidError(message, hint="choose cpu or cuda, or remove it", path="policy.device") from error


def _memory_of(device: str) -> float:
    """Return the bytes of memory of a device; infinity where they are unknown."""
    if device.startswith("cuda") and torch.cuda.is_available():
        return float(torch.cuda.get_device_properties(device).total_memory)
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError):
        return math.inf


def _disk_problems(config: TrainConfig, weights: int, out: Path) -> Iterator[str]:
    size = weights * (SAVED_BYTES + _weight_bytes(config))
    place = next(folder for folder in (out, *out.absolute().parents) if folder.is_dir())
    saved = len(list((out / "checkpoints").glob("step-*")))
    needed = size * max(1, config.keep_checkpoints + 1 - saved)
    free = shutil.disk_usage(place).free
    if needed > free:
        fit = int(free / size) - 1 + saved
        change = f"keep_checkpoints = {fit} fits" if fit >= 1 else "no checkpoint fits; choose another `out`"
        yield (
            f"keep_checkpoints: {config.keep_checkpoints} and one that is being written take {_size(needed)}, "
            f"and {place} has {_size(free)} free; {change}"
        )


def _size(count: float) -> str:
    """Return a number of bytes in GB, or in MB where it is less."""
    return f"{count / GB:.1f} GB" if count >= GB else f"{count / 1e6:.3g} MB"
