"""Low-rank adapters (LoRA, arXiv 2106.09685) of policies and judges, by peft: W + alpha / rank · B·A."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rubricsvc.errors import InvalidError
from trainer.config import LoraConfig
from trainer.recording import replace_text
from workers.engines.local import weights as files


def adapted_layers(model: Any, lora: LoraConfig) -> dict[str, nn.Linear]:
    """Return the layers that an adapter is added to, by name: all linear ones but the head, from ``first_layer`` on."""
    head, found = model.get_output_embeddings(), dict[str, nn.Linear]()
    for name, one in model.named_modules():
        number = re.search(r"\.(\d+)\.", name)
        if isinstance(one, nn.Linear) and one is not head and int(number[1] if number else 0) >= lora.first_layer:
            found[name] = one
    if not found:
        message = f"the model has no linear layer from layer {lora.first_layer} on, counted from 0"
        raise InvalidError(message, hint="lower lora.first_layer, or choose another model", path="lora.first_layer")
    return found


def add_adapter(model: Any, lora: LoraConfig, seed: int) -> Any:
    """Add a fresh adapter to a model in place, and return peft's view of it; only the adapter's weights are trained."""
    from peft import LoraConfig as PeftConfig
    from peft import get_peft_model

    layers, last = adapted_layers(model, lora), model.config.get_text_config().num_hidden_layers
    torch.manual_seed(seed)
    config = PeftConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=sorted({name.rpartition(".")[2] for name in layers}),
        layers_to_transform=list(range(lora.first_layer, last)) if lora.first_layer else None,
        task_type="CAUSAL_LM",
    )
    # its type is that of the model: the optimiser keeps float32 masters
    return get_peft_model(model, config, autocast_adapter_dtype=False)


@torch.no_grad()
def merged_weights(model: Any) -> dict[str, Tensor]:
    """Return the weights of a model with its adapter added to them in float32, by their names without it.

    The model stays as it is: to add and then to subtract would round its weights.
    """
    named = model.state_dict().items()
    weights = {name.replace(".base_layer", ""): value for name, value in named if ".lora_" not in name}
    for name, layer in model.named_modules():
        if hasattr(layer, "lora_A"):
            (down,), (up,), (scale,) = layer.lora_A.values(), layer.lora_B.values(), layer.scaling.values()
            weight = weights[f"{name}.weight"]
            weights[f"{name}.weight"] = (up.weight.float() * scale @ down.weight.float() + weight).to(weight.dtype)
    return weights


def save_adapter(adapter: Any, folder: Path, base: str, base_sha256: str) -> None:
    """Write an adapter in peft's format, with the name of its base and its digest, and no other paths of a machine."""
    adapter.save_pretrained(folder)
    files.copy_permissions(folder)
    fields = json.loads((folder / files.ADAPTER_CONFIG).read_text(encoding="utf-8"))
    fields |= {"base_model_name_or_path": base, "target_modules": sorted(fields["target_modules"])}
    replace_text(folder / files.ADAPTER_CONFIG, json.dumps(fields, indent=2, sort_keys=True) + "\n")
    replace_text(folder / files.BASE_FILE, json.dumps({"model": base, "base_sha256": base_sha256}, indent=2) + "\n")
    (folder / "README.md").unlink(missing_ok=True)
