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
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache
from transformers.utils import logging as transformers_logging

from rubricsvc.core.base import storable
from rubricsvc.core.prompt import Prompt
from rubricsvc.errors import InvalidError
from trainer.config import SamplingConfig
from trainer.environments.environment import Environment, Tool
from trainer.environments.episodes import Answers, EpisodeLimits, RunningEpisode, begin
from trainer.policies.decoding import Decoding, growing_cache, separate_contexts, use_grouped_attention
from trainer.policies.rollouts import Rollouts, Transcript, rollouts_of
from trainer.policies.sampling_server import SamplingServer
from trainer.policies.tokens import prompt_ids, token_logprobs
from workers.engines.local.models import default_device, dtype_name, end_ids, open_pretrained

GRACE_S = 0.5
"""Seconds that all wait for the tools of a turn. The random numbers of an episode depend on who is in the batch."""


@dataclass(frozen=True)
class Acting:
    """An environment to act in, and the limits of an episode.

    ``max_tokens`` are those of a completion, what the environment wrote included; what would exceed them ends it. Of a
    completion with notes they are those of a context.
    """

    environment: Environment
    limits: EpisodeLimits
    max_tokens: int

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools that the policy may call."""
        return self.limits.tools(self.environment)

    @property
    def own_environment(self) -> Environment:
        """The environment without the tools of other servers."""
        own: Environment = getattr(self.environment, "inner", None) or self.environment
        return own

    def begin(self, prompt: Prompt) -> RunningEpisode:
        """Begin an episode; see `trainer.environments.episodes.begin`."""
        return begin(self.environment, prompt, self.limits)


def sample_episodes(
    policy: Policy,
    prompts: tuple[Tensor, Tensor, Tensor],
    episodes: Sequence[RunningEpisode],
    sampling: SamplingConfig,
    generator: torch.Generator,
) -> Rollouts:
    """Sample the completions of a policy that acts in an environment.

    Args:
        policy: The policy, with ``acting``.
        prompts: Token ids of the prompts [Q, P], their mask, and the prompt of each completion [B].
        episodes: The episodes [B], at their beginning.
        sampling: How tokens are sampled; ``max_new_tokens`` limits each turn.
        generator: Where random numbers come from.
    """
    transcripts = [Transcript(episode) for episode in episodes]
    decoding, live = policy.decoding(*prompts), list(zip(transcripts, episodes, strict=True))
    waiting: list[_Turn] = []
    while live:
        sampled = decoding.sample(sampling, generator)
        rows, unfinished = sampled.rows, sampled.unfinished_B.tolist()
        for place, ((one, episode), text) in enumerate(zip(live, policy.texts(rows), strict=True)):
            one.add(
                rows[place], None if sampled.nucleus_BNK is None else sampled.nucleus_BNK[place, : len(rows[place])]
            )
            one.truncated = unfinished[place]
            waiting.append(_Turn(one, episode, episode.start(text), decoding, place))
        continued: list[tuple[_Turn, list[int]]] = []
        while waiting and not continued:
            _wait(waiting)
            answered = [turn for turn in waiting if turn.is_over]
            waiting = [turn for turn in waiting if turn not in answered]
            extended = [(turn, turn.finish(policy, sampling.max_new_tokens)) for turn in answered]
            continued = [(turn, ids) for turn, ids in extended if ids]
        live = [(turn.one, turn.episode) for turn, _ in continued]
        if live:
            decoding = Decoding.of([(turn.decoding, turn.place) for turn, _ in continued])
            decoding.forget([place for place, (one, _) in enumerate(live) if one.fresh])
            decoding.append([ids for _, ids in continued])
        if waiting:  # the sequences that have gone on or ended need not be kept for those
            left = Decoding.of([(turn.decoding, turn.place) for turn in waiting])
            for place, turn in enumerate(waiting):
                turn.decoding, turn.place = left, place
    return rollouts_of(policy, prompts, transcripts)


@dataclass(eq=False)
class _Turn:
    """A message of the policy whose calls are being answered, and its sequence: a place in a batch."""

    one: Transcript
    episode: RunningEpisode
    answers: Future[Answers]
    decoding: Decoding
    place: int
    start: float = field(default_factory=time.monotonic)

    @property
    def deadline(self) -> float:
        """When the episode ends, if its tools have not answered."""
        return self.start + self.episode.limits.tool_timeout_s

    @property
    def is_over(self) -> bool:
        """Whether the tools have answered, or have taken too long."""
        return self.answers.done() or time.monotonic() >= self.deadline

    def finish(self, policy: Policy, max_new_tokens: int) -> list[int]:
        """Return the tokens that the tools answer; none where the episode ends."""
        return self.one.answered(policy, self.episode.finish(self.answers), max_new_tokens)


def _wait(turns: Sequence[_Turn]) -> None:
    """Wait a moment for the tools of new turns; then until those of any turn have answered, or taken too long."""
    now = time.monotonic()
    new = [turn for turn in turns if turn.start + GRACE_S > now]
    if new:
        wait([turn.answers for turn in new], min(GRACE_S, *(turn.episode.limits.tool_timeout_s for turn in new)))
    if not any(turn.is_over for turn in turns):
        left = min(turn.deadline for turn in turns) - time.monotonic()
        wait([turn.answers for turn in turns], max(0.0, left), FIRST_COMPLETED)


class Policy:
    """A causal language model and its tokenizer. ``model`` is trained in place.

    With ``acting`` its completions are episodes in an environment, whose tools it may call. With ``server`` they are
    sampled there.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        name: str = "policy",
        acting: Acting | None = None,
        server: SamplingServer | None = None,
    ) -> None:
        self.acting, self.server = acting, server
        self._id = uuid4().hex
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
        server: SamplingServer | None = None,
    ) -> Self:
        """Load ``model``: ``embedded``, a folder, or a name on the Hugging Face hub.

        ``dtype`` is by default bfloat16 where the device computes with it, else float32.
        """
        loaded, tokenizer = open_pretrained(model, getattr(torch, dtype or dtype_name(device or "")))
        return cls(loaded.to(device or default_device()), tokenizer, model, acting, server)

    @property
    def device(self) -> torch.device:
        """Device of the model's weights."""
        return torch.device(self.model.device)

    @property
    def version(self) -> str:
        """A text that changes whenever the weights do, and that no other policy has."""
        return f"{self._id}-{sum(weight._version for weight in self.model.parameters())}"

    def frozen_copy(self) -> Policy:
        """Return a copy of the policy that is not trained: the reference of a KL penalty."""
        model, name = copy.deepcopy(self.model).requires_grad_(False), f"{self.name} (reference)"
        return Policy(model, self.tokenizer, name, self.acting, self.server)

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
        """Return the tokens of a prompt with its documents, and the tools that the policy may call."""
        setting = "sampling.max_new_tokens"
        if self.acting is not None:
            setting, max_new_tokens = "environment.max_tokens", self.acting.max_tokens
        ids = prompt_ids(self.tokenizer, prompt, self.acting.tools if self.acting else ())
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

        In an environment ``max_new_tokens`` limits each turn; where tools are slow, the same seed may give others.
        """
        generator = torch.Generator(self.device).manual_seed(seed)
        ids_QP, mask_QP = self.encode(prompts, sampling.max_new_tokens)
        prompt_of_B = torch.arange(len(prompts), device=self.device).repeat_interleave(group_size)
        acting, asked = self.acting, (ids_QP, mask_QP, prompt_of_B)
        episodes = [acting.begin(prompts[place]) for place in prompt_of_B.tolist()] if acting else []
        if self.server is not None:
            return self.server.sample(self, asked, episodes, sampling, seed)
        if episodes:
            return sample_episodes(self, asked, episodes, sampling, generator)
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
        written_BT, nucleus_BTK = rollouts.written_BT, rollouts.nucleus_BTK
        logits_NV = first_BV[written_BT[:, 0]]
        if rollouts.ids_BT.shape[1] > 1:
            mask_BT = torch.cat([rollouts.prompt_mask_QP[rollouts.prompt_of_B], rollouts.mask_BT[:, :-1]], dim=-1)
            with self._logits_at(written_BT[:, 1:]):
                context_BT = None if rollouts.context_BT is None else rollouts.context_BT[:, :-1]
                rest_1NV = self.forward(rollouts.ids_BT[:, :-1], mask_BT, cache, context_BT=context_BT)
            logits_NV = torch.cat([logits_NV, rest_1NV.squeeze(0)])
        first_BT, rest_BT = written_BT.clone(), written_BT.clone()
        first_BT[:, 1:], rest_BT[:, :1] = False, False
        places = torch.cat([first_BT.nonzero(), rest_BT.nonzero()]).unbind(-1)
        nucleus_NK = None if nucleus_BTK is None else nucleus_BTK[places]
        logp_N, entropy_N = token_logprobs(logits_NV, rollouts.ids_BT[places], temperature, nucleus_NK)
        zeros_BT = logp_N.new_zeros(written_BT.shape)
        return zeros_BT.index_put(places, logp_N), zeros_BT.index_put(places, entropy_N)

    @contextmanager
    def _logits_at(self, chosen_BT: Tensor) -> Iterator[None]:
        """Compute logits only at the chosen tokens, as [1, N, V]: tools and padding write most of an episode's tokens.

        The output embeddings get the hidden states of these tokens, so that what a model does to its logits stays.
        """

        def choose(_module: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return inputs[0][chosen_BT].unsqueeze(0), *inputs[1:]

        hook = self.model.get_output_embeddings().register_forward_pre_hook(choose)
        try:
            yield
        finally:
            hook.remove()

    def _prefill(self, ids_QP: Tensor, mask_QP: Tensor, prompt_of_B: Tensor) -> tuple[Tensor, DynamicCache]:
        """Process each prompt once; return the next token's logits [B, V] and keys and values for each completion."""
        cache = growing_cache(self.model.config)
        logits_QV = self.forward(ids_QP, mask_QP, cache, keep=1).squeeze(1)
        cache.batch_select_indices(prompt_of_B)
        return logits_QV[prompt_of_B], cache

    def forward(
        self,
        ids_BT: Tensor,
        context_mask_BT: Tensor,
        cache: DynamicCache,
        keep: int = 0,
        context_BT: Tensor | None = None,
    ) -> Tensor:
        """Return logits [B, keep or T, V] after ``ids_BT``. The mask covers all tokens up to and including these.

        With ``context_BT`` these tokens see those of their own context only, and the prompt before them.
        """
        mask, position_BT = context_mask_BT.long(), (context_mask_BT.cumsum(-1) - 1).clamp(min=0)[:, -ids_BT.shape[1] :]
        if context_BT is not None:
            mask, position_BT = separate_contexts(context_mask_BT, context_BT)
        output = self.model(
            input_ids=ids_BT,
            attention_mask=mask,
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
