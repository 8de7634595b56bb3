"""LoRA adapters in peft's format, merged into the weights of their base when the model is loaded.

A merged model is as fast as its base. peft is not imported: its files are safetensors named by module
(``base_model.model.<module>.lora_A.weight``) and a JSON configuration. What is no plain LoRA is refused: DoRA, biases,
whole modules, embeddings, ranks by module, initializations that change the base.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors

from rubricsvc.core.validation_messages import first_error
from rubricsvc.errors import InvalidError, UnavailableError, cut
from workers.engines.local import weights

_KEY = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
_PLAIN_HINT = "train a plain LoRA of linear layers (use_dora=False, bias='none', modules_to_save=None)"
_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_DTYPE_HINT = "save the adapter in float32, bfloat16 or float16"
_BASE_HINT = "name the base that the adapter was trained on: `rubricsvc judges add NAME --adapter FOLDER --model BASE`"

_WITHOUT_EFFECT = """
auto_mapping base_model_name_or_path ensure_weight_tying inference_mode layers_pattern layers_to_transform lora_dropout
megatron_core peft_version qalora_group_size revision runtime_config task_type
"""
"""Fields of peft's configuration that do not change the merged weights, once the modules are named by the file."""

_EXACT_INITIALIZATIONS = (True, False, None, "gaussian", "orthogonal")
"""Values of ``init_lora_weights`` that leave the base as it is. Others, such as ``pissa``, change it."""


class AdapterConfig(BaseModel):
    """The fields of peft's ``adapter_config.json`` that decide the merged weights; ``model_extra`` has the others."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    peft_type: str
    r: Annotated[int, Field(ge=1)]
    lora_alpha: Annotated[float, Field(ge=-1e6, le=1e6)]
    target_modules: list[str] | str
    use_rslora: bool = False
    init_lora_weights: Any = True


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter. ``pairs`` has A (rank x inputs) and B (outputs x rank) of each module."""

    folder: Path
    config: AdapterConfig
    pairs: dict[str, tuple[torch.Tensor, torch.Tensor]]

    @torch.no_grad()
    def merge_into(self, model: Any, model_name: str, folder: Path) -> None:
        """Add ``scale``·B·A to the weights of each module, in float32.

        The model is ``model_name``, whose files are in ``folder``: that which the adapter names, if it names one.
        """
        base, sha256_of_base = weights.trained_on(self.folder)
        if sha256_of_base is not None and sha256_of_base != (actual := weights.base_sha256(model_name, folder)):
            raise InvalidError(
                f"the adapter {self.folder} was trained on {base or 'another base'} (SHA-256 {sha256_of_base}), "
                f"not on {model_name} ({actual})",
                hint=_BASE_HINT,
            )
        tied = {id(model.get_input_embeddings().weight)}
        layers = {
            name: layer
            for name, layer in model.named_modules()
            if isinstance(layer, torch.nn.Linear) and id(layer.weight) not in tied
        }
        if unknown := next((name for name in self.pairs if name not in layers), None):
            raise self._wrong(f"the base has no linear layer {unknown!r} of its own")
        config = self.config
        listed = config.target_modules if isinstance(config.target_modules, list) else []
        if (config.model_extra or {}).get("layers_to_transform") is not None:
            listed = []
        targets = (name for name in layers if any(f".{name}".endswith(f".{end}") for end in listed))
        if missing := next((name for name in targets if name not in self.pairs), None):
            raise self._wrong(f"the adapter has no weights for {missing!r} of the base")
        scale = config.lora_alpha / (math.sqrt(config.r) if config.use_rslora else config.r)
        buffer = torch.empty(max(layers[name].weight.numel() for name in self.pairs))
        for name, (down, up) in self.pairs.items():
            weight = layers[name].weight
            ranks = (up.shape[1], down.shape[0])
            if ranks != (config.r, config.r):
                message = f"{name}: the adapter's matrices have the ranks {ranks}, its configuration {config.r}"
                raise self._wrong(message, "copy the adapter's files again")
            if (made := (up.shape[0], down.shape[1])) != tuple(weight.shape):
                raise self._wrong(f"{name} has the shape {made} in the adapter and {tuple(weight.shape)} in the base")
            merged = buffer[: weight.numel()].view(weight.shape)
            torch.mm(up.float() * scale, down.float(), out=merged).add_(weight)
            # Not in place: the base's file is mapped, and each first write to a page would copy it.
            layers[name].weight = torch.nn.Parameter(merged.to(weight.dtype, copy=True), requires_grad=False)
            if not math.isfinite(float(layers[name].weight.sum(dtype=torch.float32))):  # much faster than isfinite
                raise self._wrong(f"{name}: the merged weights have values that are not finite", "train it again")

    def _wrong(self, message: str, hint: str = _BASE_HINT) -> InvalidError:
        return InvalidError(f"the adapter {self.folder} does not fit: {message}", hint=hint)


def read_adapter(adapter: str, expected_sha256: str | None = None) -> Adapter:
    """Read an adapter: ``embedded``, or a folder."""
    folder = weights.adapter_folder(adapter)
    contents = {}
    for name in (weights.ADAPTER_CONFIG, weights.ADAPTER_WEIGHTS):
        try:
            contents[name] = (folder / name).read_bytes()
        except OSError as error:
            raise weights.unreadable(folder / name, error) from error
    weights.check_sha256(folder, expected_sha256)
    path = folder / weights.ADAPTER_CONFIG
    try:
        config = AdapterConfig.model_validate_json(contents[weights.ADAPTER_CONFIG])
    except ValidationError as error:
        field, message = first_error(error)
        raise InvalidError(f"{path}: {field or 'no JSON object'}: {message}", hint=_PLAIN_HINT) from error
    inexact = [] if config.peft_type == "LORA" else [f"peft_type: {config.peft_type}"]
    if config.init_lora_weights not in _EXACT_INITIALIZATIONS:
        inexact.append(f"init_lora_weights: {config.init_lora_weights}")
    others = {name: value for name, value in (config.model_extra or {}).items() if name not in _WITHOUT_EFFECT.split()}
    inexact += [f"{name}: {value}" for name, value in others.items() if value and value != "none"]
    if inexact:
        raise InvalidError(f"{path}: an adapter with {cut(inexact[0], 200)} is not supported", hint=_PLAIN_HINT)
    return Adapter(folder, config, _pairs(folder / weights.ADAPTER_WEIGHTS, contents[weights.ADAPTER_WEIGHTS]))


def _pairs(path: Path, content: bytes) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    try:
        tensors = load_tensors(content)
    except KeyError as error:  # of a number format that safetensors does not have in torch
        raise InvalidError(f"{path}: tensors in {error} are not supported", hint=_DTYPE_HINT) from error
    except SafetensorError as error:
        raise UnavailableError(f"{path} is truncated or damaged: {error}", hint="copy the file again") from error
    sides: dict[str, dict[str, torch.Tensor]] = {}
    for key, tensor in tensors.items():
        match = _KEY.fullmatch(key)
        if match is None or tensor.dim() != 2 or not tensor.is_floating_point():
            raise InvalidError(f"{path}: {cut(key, 200)} is no matrix of a LoRA of a linear layer", hint=_PLAIN_HINT)
        if tensor.dtype not in _DTYPES:
            raise InvalidError(f"{path}: tensors in {tensor.dtype} are not supported", hint=_DTYPE_HINT)
        if not torch.isfinite(tensor).all():
            raise InvalidError(f"{path}: {key} has values that are not finite (NaN, inf)", hint="train it again")
        sides.setdefault(match[1], {})[match[2]] = tensor
    if not sides or (halved := next((name for name, pair in sides.items() if len(pair) < 2), None)):
        what = f"{halved} has lora_A or lora_B alone" if sides else "no tensors"
        raise InvalidError(f"{path}: {what}", hint="copy the adapter's files again")
    return {name: (pair["A"], pair["B"]) for name, pair in sides.items()}
