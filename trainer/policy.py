"""The model that learns: its prompts, its sampled completions, and the log-probabilities that it gives to tokens.

A prompt is read once for all completions of its group, in sampling and in training alike: its keys and values are
computed for one row and handed to every member, and gradients flow back through them. With a group of 8 and prompts as
long as completions this halves the work of a training step.

The model stays in evaluation mode: dropout would make the policy that learns another one than the policy that wrote.
Shapes in names: Q prompts, P prompt tokens, B completions, T completion tokens, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.utils import logging as transformers_logging

from rubricsvc.core.prompt import Prompt
from rubricsvc.errors import InvalidError
from trainer.attention import use_grouped_attention
from trainer.config import SamplingConfig
from trainer.rollouts import Rollouts
from trainer.tokens import sample_tokens, token_logprobs
from workers.engines.local.models import default_device, end_ids, open_pretrained


class Policy:
    """A causal language model and its tokenizer. ``model`` is trained in place."""

    def __init__(self, model: Any, tokenizer: Any, name: str = "policy") -> None:
        self.model = model.eval()
        use_grouped_attention(model)
        self.tokenizer = tokenizer
        self.name = name
        if tokenizer.eos_token_id is None:
            raise InvalidError(f"the tokenizer of {name!r} has no end token; completions could never end")
        self._ends = torch.tensor(sorted(end_ids(model, tokenizer)), device=model.device)

    @classmethod
    def load(cls, model: str = "embedded", *, dtype: str = "bfloat16", device: str | None = None) -> Self:
        """``model``: ``embedded``, a folder, or a name on the hub.

        Raises:
            UnavailableError: it cannot be fetched or read.
        """
        loaded, tokenizer = open_pretrained(model, getattr(torch, dtype))
        return cls(loaded.to(device or default_device()), tokenizer, model)

    @property
    def device(self) -> torch.device:
        return torch.device(self.model.device)

    def frozen_copy(self) -> Policy:
        """The policy as it is now, never to be trained: the reference of a KL penalty."""
        return Policy(copy.deepcopy(self.model).requires_grad_(False), self.tokenizer, f"{self.name} (reference)")

    def save(self, folder: Path) -> None:
        """As safetensors with the tokenizer: transformers and vLLM load the folder."""
        transformers_logging.disable_progress_bar()
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def encode(self, prompts: Sequence[Prompt]) -> tuple[Tensor, Tensor]:
        """Token ids [Q, P], padded on the left, and their mask. Without a chat template the bare text is the prompt."""
        encoded = self.tokenizer([self._text(prompt) for prompt in prompts], add_special_tokens=False)["input_ids"]
        width = max(1, *(len(ids) for ids in encoded))
        ids_QP = torch.full((len(prompts), width), int(self._ends[0]))
        mask_QP = torch.zeros((len(prompts), width), dtype=torch.bool)
        for row, ids in enumerate(encoded):
            if not ids:
                raise InvalidError("a prompt has no tokens; a policy needs something to go on from")
            ids_QP[row, width - len(ids) :] = torch.tensor(ids)
            mask_QP[row, width - len(ids) :] = True
        return ids_QP.to(self.device), mask_QP.to(self.device)

    def _text(self, prompt: Prompt) -> str:
        if not self.tokenizer.chat_template:
            return prompt.text
        messages = [message.model_dump(exclude_none=True) for message in prompt.messages]
        return str(self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))

    @torch.no_grad()
    def sample(
        self, prompts: Sequence[Prompt], group_size: int, sampling: SamplingConfig, generator: torch.Generator
    ) -> Rollouts:
        """``group_size`` completions for each prompt. The same generator state gives the same completions.

        Raises:
            InvalidError: the longest prompt leaves no room for ``max_new_tokens`` in the model's context.
        """
        ids_QP, mask_QP = self.encode(prompts)
        self._refuse_too_long(ids_QP.shape[1] + sampling.max_new_tokens)
        prompt_of_B = torch.arange(len(prompts), device=self.device).repeat_interleave(group_size)
        logits_BV, cache = self._read_prompts(ids_QP, mask_QP, prompt_of_B)
        mask_B = torch.ones(len(prompt_of_B), dtype=torch.bool, device=self.device)
        seen_BT = mask_QP[prompt_of_B]
        tokens: list[Tensor] = []
        masks: list[Tensor] = []
        for _ in range(sampling.max_new_tokens):
            if tokens:
                logits_BV = self._forward(tokens[-1].unsqueeze(-1), seen_BT, cache).squeeze(1)
            token_B = sample_tokens(logits_BV, sampling.temperature, sampling.top_p, generator)
            tokens.append(torch.where(mask_B, token_B, self._ends[0]))
            masks.append(mask_B)
            seen_BT = torch.cat([seen_BT, mask_B.unsqueeze(-1)], dim=-1)
            mask_B = mask_B & ~torch.isin(token_B, self._ends)
            if not mask_B.any():
                break
        ids_BT, mask_BT = torch.stack(tokens, dim=-1), torch.stack(masks, dim=-1)
        written = [ids[mask].tolist() for ids, mask in zip(ids_BT, mask_BT, strict=True)]
        texts = tuple(self.tokenizer.batch_decode(written, skip_special_tokens=True))
        return Rollouts(ids_QP, mask_QP, prompt_of_B, ids_BT, mask_BT, truncated_B=mask_B, texts=texts)

    def logprobs(self, rollouts: Rollouts, temperature: float) -> tuple[Tensor, Tensor]:
        """Log-probability of every completion token, and the entropy (nats, no gradient) of the choice there: [B, T].

        Both are of the distribution at ``temperature``, the one that was sampled from. Padding holds 0.
        """
        first_BV, cache = self._read_prompts(rollouts.prompt_ids_QP, rollouts.prompt_mask_QP, rollouts.prompt_of_B)
        parts = [token_logprobs(first_BV.unsqueeze(1), rollouts.ids_BT[:, :1], temperature)]
        if rollouts.ids_BT.shape[1] > 1:
            seen_BT = torch.cat([rollouts.prompt_mask_QP[rollouts.prompt_of_B], rollouts.mask_BT[:, :-1]], dim=-1)
            rest_BTV = self._forward(rollouts.ids_BT[:, :-1], seen_BT, cache)
            parts.append(token_logprobs(rest_BTV, rollouts.ids_BT[:, 1:], temperature))
        logp_BT, entropy_BT = (torch.cat(pieces, dim=-1) for pieces in zip(*parts, strict=True))
        return torch.where(rollouts.mask_BT, logp_BT, 0.0), torch.where(rollouts.mask_BT, entropy_BT, 0.0)

    def _read_prompts(self, ids_QP: Tensor, mask_QP: Tensor, prompt_of_B: Tensor) -> tuple[Tensor, DynamicCache]:
        """Each prompt once; then the logits after it [B, V] and its keys and values for each of its completions."""
        cache = DynamicCache(config=self.model.config)
        logits_QV = self._forward(ids_QP, mask_QP, cache, keep=1).squeeze(1)
        cache.batch_select_indices(prompt_of_B)
        return logits_QV[prompt_of_B], cache

    def _forward(self, ids_BT: Tensor, seen_BT: Tensor, cache: DynamicCache, keep: int = 0) -> Tensor:
        """Logits [B, keep or T, V] after ``ids_BT``. ``seen_BT`` masks all tokens up to and including these."""
        position_BT = (seen_BT.cumsum(-1) - 1).clamp(min=0)[:, -ids_BT.shape[1] :]
        output = self.model(
            input_ids=ids_BT,
            attention_mask=seen_BT.long(),
            position_ids=position_BT,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=keep,
        )
        logits: Tensor = output.logits
        return logits

    def _refuse_too_long(self, tokens: int) -> None:
        context = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        if context is not None and tokens > context:
            raise InvalidError(
                f"the longest prompt with sampling.max_new_tokens needs {tokens} tokens; the policy reads {context}",
                hint="shorten the prompts or lower max_new_tokens; nothing is cut off silently",
            )
