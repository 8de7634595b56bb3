"""LoRA adapters of random matrices, written by peft."""

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def tiny_adapter(base: Path, folder: Path, **options: Any) -> Path:
    """Save an adapter of ``base``, whose matrices are random, not zero; ``options`` are those of LoraConfig."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(base)
    fields = {"r": 4, "lora_alpha": 8, "target_modules": _LINEAR, "init_lora_weights": False} | options
    get_peft_model(model, LoraConfig(**fields)).save_pretrained(folder)
    return folder
