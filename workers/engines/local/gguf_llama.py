r"""A reader of Llama models and their tokenizers from GGUF files into transformers' classes.

Since 5.19 the reader of transformers (``gguf_file=``) keeps the weights packed, cannot save them and needs accelerate;
it also splits numbers differently from the model's training, which changes the tokens of every numbered list
("\n\n2." must have its two line ends in one token).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from gguf import MODEL_ARCH, GGUFReader, TokenType, dequantize, get_tensor_name_map
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def read_llama(path: Path) -> tuple[Any, Any]:
    """Return the model, its weights dequantized to bfloat16, and the tokenizer (SmolLM's) with its chat template."""
    reader = GGUFReader(path)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    return _model(reader, fields), _tokenizer(fields)


def _model(reader: GGUFReader, fields: dict[str, Any]) -> Any:
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
        module = name.split(".")[-2]
        parameter.data = (_unpermute(weight, heads[module]) if module in heads else weight).to(torch.bfloat16)
    return model


def _unpermute(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Reorder the rows of each rotary head: GGUF interleaves its two halves, transformers concatenates them."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _tokenizer(fields: dict[str, Any]) -> Any:
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    backend = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    types = fields["tokenizer.ggml.token_type"]
    special = [token for token, kind in zip(tokens, types, strict=True) if kind == TokenType.CONTROL]
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
