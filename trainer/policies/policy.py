"""The model that is trained: its prompts, its sampled completions, and its log-probabilities of tokens.

A prompt is processed once for all completions of its group, in sampling and in training alike: its keys and values are
computed for one row and shared by every member, and gradients flow back through them. With a group of 8 and prompts as
long as completions this halves the work of a training step.

The model stays in evaluation mode: with dropout the policy that is trained would not be the policy that sampled.
Shapes in names: Q prompts, P prompt tokens, B completions, T completion tokens, V vocabulary.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache
from transformers.utils import logging as transformers_logging

from rubricsvc.core.base import storable
from rubricsvc.core.prompt import Prompt
from rubricsvc.errors import InvalidError
from trainer.config import SamplingConfig
from trainer.policies.attention import use_grouped_attention
from trainer.policies.chat import prompt_ids
from trainer.policies.decoding import Decoding
from trainer.policies.episode_sampling import Acting, sample_episodes
from trainer.policies.rollouts import Rollouts
from trainer.policies.tokens import token_logprobs
from workers.engines.local.models import default_device, dtype_name, end_ids, open_pretrained


class Policy:
    """A causal language model and its tokenizer. ``model`` is trained in place.

    With ``acting`` its completions are episodes in an environment, whose tools it may call.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str = "policy", acting: Acting | None = None) -> None:
        self.acting = acting
        self.model = model.eval()
        use_grouped_attention(model)
        self.tokenizer = tokenizer
        self.name = name
        if tokenizer.eos_token_id is None:
            raise InvalidError(
                f"the tokenizer of {name!r} has no end token: completions would never end",
                hint="set `eos_token` in its tokenizer_config.json",
            )
        self.end_ids = torch.tensor(sorted(end_ids(model, tokenizer)), device=model.device)

    @classmethod
    def load(
        cls,
        model: str = "embedded",
        *,
        dtype: str | None = None,
        device: str | None = None,
        acting: Acting | None = None,
    ) -> Self:
        """Load ``model``: ``embedded``, a folder, or a name on the Hugging Face hub.

        ``dtype`` is by default bfloat16 where the device computes with it, else float32.

        Raises:
            UnavailableError: it cannot be fetched or read.
        """
        loaded, tokenizer = open_pretrained(model, getattr(torch, dtype or dtype_name(device or "")))
        return cls(loaded.to(device or default_device()), tokenizer, model, acting)

    @property
    def device(self) -> torch.device:
        """Device of the model's weights."""
        return torch.device(self.model.device)

    def frozen_copy(self) -> Policy:
        """Return a copy of the policy that is not trained: the reference of a KL penalty."""
        return Policy(
            copy.deepcopy(self.model).requires_grad_(False), self.tokenizer, f"{self.name} (reference)", self.acting
        )

    def save(self, folder: Path) -> None:
        """Write safetensors and the tokenizer to ``folder``; transformers and vLLM load it."""
        transformers_logging.disable_progress_bar()
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def encode(self, prompts: Sequence[Prompt], max_new_tokens: int = 0) -> tuple[Tensor, Tensor]:
        """Return the `token_ids` of prompts [Q, P], padded on the left, and their mask."""
        rows = [torch.tensor(self.token_ids(prompt, max_new_tokens), device=self.device) for prompt in prompts]
        masks = [torch.ones_like(row, dtype=torch.bool) for row in rows]
        ids_QP = pad_sequence(rows, batch_first=True, padding_value=int(self.end_ids[0]), padding_side="left")
        return ids_QP, pad_sequence(masks, batch_first=True, padding_side="left")

    def token_ids(self, prompt: Prompt, max_new_tokens: int = 0) -> list[int]:
        """Return the tokens of a prompt with its documents, and the tools that the policy may call.

        Raises:
            InvalidError: the prompt has no tokens, or leaves no room for ``max_new_tokens`` in the model's context.
                Nothing is truncated.
        """
        setting = "sampling.max_new_tokens"
        if self.acting is not None:
            setting, max_new_tokens = "environment.max_tokens", self.acting.max_tokens
        ids = prompt_ids(self.tokenizer, prompt, self.acting.environment.tools if self.acting else ())
        if not ids:
            raise InvalidError("a prompt has no tokens", hint="give every prompt a text")
        context = context_of(self.model.config)
        if len(ids) + max_new_tokens > context:
            documents = " with its documents" if prompt.documents else ""
            raise InvalidError(
                f"prompt {prompt.text[:60]!r}{documents} has {len(ids)} tokens; the policy's context of {context} has "
                f"room for {max(0, context - max_new_tokens)} beside {setting} = {max_new_tokens}",
                hint=f"shorten the prompt or its documents, or lower {setting}",
            )
        return ids

    @torch.no_grad()
    def sample(self, prompts: Sequence[Prompt], group_size: int, sampling: SamplingConfig, seed: int) -> Rollouts:
        """Sample ``group_size`` completions for each prompt. The same seed gives the same completions.

        In an environment ``max_new_tokens`` limits each turn.

        Raises:
            InvalidError: a prompt leaves no room for ``max_new_tokens`` in the model's context.
        """
        generator = torch.Generator(self.device).manual_seed(seed)
        ids_QP, mask_QP = self.encode(prompts, sampling.max_new_tokens)
        prompt_of_B = torch.arange(len(prompts), device=self.device).repeat_interleave(group_size)
        if self.acting is not None:
            episodes = [self.acting.begin(prompts[place]) for place in prompt_of_B.tolist()]
            return sample_episodes(self, (ids_QP, mask_QP, prompt_of_B), episodes, sampling, generator)
        sampled = self.decoding(ids_QP, mask_QP, prompt_of_B).sample(sampling, generator)
        return Rollouts(
            prompt_ids_QP=ids_QP,
            prompt_mask_QP=mask_QP,
            prompt_of_B=prompt_of_B,
            ids_BT=sampled.ids_BN,
            mask_BT=sampled.mask_BN,
            truncated_B=sampled.unfinished_B,
            texts=self.texts(sampled.rows),
            nucleus_BTK=sampled.nucleus_BNK,
        )

    def decoding(self, ids_QP: Tensor, mask_QP: Tensor, prompt_of_B: Tensor) -> Decoding:
        """Process prompts, and return the completions that begin after them."""
        logits_BV, cache = self._prefill(ids_QP, mask_QP, prompt_of_B)
        return Decoding(self, cache, mask_QP[prompt_of_B], logits_BV)

    def texts(self, rows: Sequence[Sequence[int]]) -> tuple[str, ...]:
        """Return the texts of tokens, with U+FFFD for characters that a service cannot store."""
        return tuple(map(storable, self.tokenizer.batch_decode(rows, skip_special_tokens=True)))

    def logprobs(self, rollouts: Rollouts, temperature: float) -> tuple[Tensor, Tensor]:
        """Return the log-probability of every completion token and the entropy of its distribution, in nats.

        Both are of the distribution that was sampled from: at ``temperature``, restricted to the rollouts' nuclei
        where there are any (`trainer.policies.tokens` says why). Both are [B, T], 0 at padding and at tokens that the
        policy did not write; the entropy has no gradient.
        """
        first_BV, cache = self._prefill(rollouts.prompt_ids_QP, rollouts.prompt_mask_QP, rollouts.prompt_of_B)
        nucleus_BTK = rollouts.nucleus_BTK
        first_nucleus, rest_nucleus = (None, None) if nucleus_BTK is None else (nucleus_BTK[:, :1], nucleus_BTK[:, 1:])
        parts = [token_logprobs(first_BV.unsqueeze(1), rollouts.ids_BT[:, :1], temperature, first_nucleus)]
        if rollouts.ids_BT.shape[1] > 1:
            mask_BT = torch.cat([rollouts.prompt_mask_QP[rollouts.prompt_of_B], rollouts.mask_BT[:, :-1]], dim=-1)
            rest_BTV = self.forward(rollouts.ids_BT[:, :-1], mask_BT, cache)
            parts.append(token_logprobs(rest_BTV, rollouts.ids_BT[:, 1:], temperature, rest_nucleus))
        logp_BT, entropy_BT = (torch.cat(pieces, dim=-1) for pieces in zip(*parts, strict=True))
        return torch.where(rollouts.written_BT, logp_BT, 0.0), torch.where(rollouts.written_BT, entropy_BT, 0.0)

    def _prefill(self, ids_QP: Tensor, mask_QP: Tensor, prompt_of_B: Tensor) -> tuple[Tensor, DynamicCache]:
        """Process each prompt once; return the next token's logits [B, V] and keys and values for each completion."""
        cache = DynamicCache(config=self.model.config)
        logits_QV = self.forward(ids_QP, mask_QP, cache, keep=1).squeeze(1)
        cache.batch_select_indices(prompt_of_B)
        return logits_QV[prompt_of_B], cache

    def forward(self, ids_BT: Tensor, context_mask_BT: Tensor, cache: DynamicCache, keep: int = 0) -> Tensor:
        """Return logits [B, keep or T, V] after ``ids_BT``. The mask covers all tokens up to and including these."""
        position_BT = (context_mask_BT.cumsum(-1) - 1).clamp(min=0)[:, -ids_BT.shape[1] :]
        output = self.model(
            input_ids=ids_BT,
            attention_mask=context_mask_BT.long(),
            position_ids=position_BT,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=keep,
        )
        logits: Tensor = output.logits
        return logits


def context_of(config: Any) -> float:
    """Return the tokens of a model's context; infinity where its configuration does not say."""
    return getattr(config.get_text_config(), "max_position_embeddings", None) or math.inf
