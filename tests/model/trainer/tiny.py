"""A policy of some thousand weights over the letters of the alphabet."""

import string

import torch
from tokenizers import Tokenizer, decoders, models
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from trainer.config import SamplingConfig, TrainConfig
from trainer.data.tasks import Task
from trainer.policies.policy import Policy

LETTERS = string.ascii_lowercase + " "
EOS = "<eos>"
RUBRIC = Rubric(criteria=[Criterion(key="good", text="It is good.")])
PROMPTS = [Prompt.of(text) for text in ("say a", "tell me something long", "b", "count the letters")]
TASKS = [Task(prompt, RUBRIC) for prompt in PROMPTS]


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {token: index for index, token in enumerate([EOS, *LETTERS])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS)


def tiny_policy(seed: int = 0, dtype: torch.dtype = torch.float32, hidden_size: int = 32, context: int = 64) -> Policy:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(LETTERS) + 1,
        hidden_size=hidden_size,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
    )
    return Policy(AutoModelForCausalLM.from_config(config, dtype=dtype), tiny_tokenizer(), "tiny")


def tiny_config(**fields: object) -> TrainConfig:
    sampling = {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 8}
    plain = {"steps": 6, "sampling": sampling, "optim": {"lr": 1e-2}, **fields}
    return TrainConfig.model_validate(plain)


SAMPLING = SamplingConfig(group_size=4, max_new_tokens=8)


def share_of_a(_: Prompt, text: str) -> float:
    """Return the share of the letter a: a task that is learned in a few steps."""
    return text.count("a") / max(1, len(text))
