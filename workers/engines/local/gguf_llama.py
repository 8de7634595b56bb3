r"""A reader of Llama models and their tokenizers from GGUF files into transformers' classes.

Since 5.19 the reader of transformers (``gguf_file=``) keeps the weights packed, cannot save them and needs accelerate;
it also splits numbers differently from the model's training, which changes the tokens of every numbered list
("\n\n2." must have its two line ends in one token).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader, TokenType, dequantize
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def read_llama(path: Path, dtype: torch.dtype = torch.bfloat16) -> tuple[Any, Any]:
    """Return the model, its weights dequantized to ``dtype``, and the tokenizer with its chat template.

    Raises:
        ValueError: The file is not GGUF, or not a Llama model with a ``smollm`` tokenizer.
    """
    reader = GGUFReader(path)
    kind = (_field(reader, "general.architecture"), _field(reader, "tokenizer.ggml.pre"))
    if kind != ("llama", "smollm"):
        raise ValueError(f"{path} holds architecture and tokenizer {kind}, not ('llama', 'smollm')")
    return _model(reader, dtype), _tokenizer(reader)


def _field(reader: GGUFReader, key: str) -> Any:
    field = reader.get_field(key)
    if field is None:
        raise ValueError(f"the GGUF file has no field {key!r}")
    return field.contents()


def _model(reader: GGUFReader, dtype: torch.dtype) -> Any:
    heads, kv_heads = _field(reader, "llama.attention.head_count"), _field(reader, "llama.attention.head_count_kv")
    names = {tensor.name for tensor in reader.tensors}
    config = LlamaConfig(
        vocab_size=_field(reader, "llama.vocab_size"),
        hidden_size=_field(reader, "llama.embedding_length"),
        intermediate_size=_field(reader, "llama.feed_forward_length"),
        num_hidden_layers=_field(reader, "llama.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=_field(reader, "llama.context_length"),
        rms_norm_eps=round(_field(reader, "llama.attention.layer_norm_rms_epsilon"), 9),
        rope_theta=_field(reader, "llama.rope.freq_base"),
        bos_token_id=_field(reader, "tokenizer.ggml.bos_token_id"),
        eos_token_id=_field(reader, "tokenizer.ggml.eos_token_id"),
        pad_token_id=_field(reader, "tokenizer.ggml.padding_token_id"),
        tie_word_embeddings="output.weight" not in names,
    )
    state = {}
    for tensor in reader.tensors:
        weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).to(dtype)
        if ".attn_q." in tensor.name or ".attn_k." in tensor.name:
            weight = _unpermute(weight, heads if ".attn_q." in tensor.name else kv_heads)
        state[_transformers_name(tensor.name)] = weight
    return LlamaForCausalLM.from_pretrained(None, config=config, state_dict=state, dtype=dtype)


def _transformers_name(name: str) -> str:
    """Return ``model.layers.3.self_attn.q_proj.weight`` for ``blk.3.attn_q.weight``."""
    if not name.startswith("blk."):
        stem, kind = name.rsplit(".", 1)
        return f"{_TOP[stem]}.{kind}"
    _, layer, stem, kind = name.split(".")
    return f"model.layers.{layer}.{_LAYER[stem]}.{kind}"


def _unpermute(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Reorder the rows of each rotary head: GGUF interleaves its two halves, transformers concatenates them."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _tokenizer(reader: GGUFReader) -> Any:
    tokens: list[str] = _field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in _field(reader, "tokenizer.ggml.merges")]
    backend = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    types = _field(reader, "tokenizer.ggml.token_type")
    special = [token for token, kind in zip(tokens, types, strict=True) if kind == TokenType.CONTROL]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=tokens[_field(reader, "tokenizer.ggml.bos_token_id")],
        eos_token=tokens[_field(reader, "tokenizer.ggml.eos_token_id")],
        unk_token=tokens[_field(reader, "tokenizer.ggml.unknown_token_id")],
        pad_token=tokens[_field(reader, "tokenizer.ggml.padding_token_id")],
        chat_template=_field(reader, "tokenizer.chat_template"),
        model_max_length=_field(reader, "llama.context_length"),
        clean_up_tokenization_spaces=False,
    )
