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
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.utils import logging as transformers_logging

from rubricsvc.core.base import storable
from rubricsvc.core.prompt import Prompt
from rubricsvc.errors import InvalidError
from trainer.config import LoraConfig, SamplingConfig
from trainer.data.tasks import stream_seed
from trainer.environments.episodes import Acting, Answers, begin
from trainer.environments.tool_calls import Tool, with_tools
from trainer.optim import LOWER_LR, NonFiniteError
from trainer.policies.lora import add_adapter, merged_weights, save_adapter
from trainer.policies.rollouts import NO_OPTIONS, Rollouts, Transcript, rollouts_of
from trainer.policies.sampling_server import SamplingServer
from workers.engines.local.models import default_device, default_dtype, end_ids, model_folder, open_pretrained
from workers.engines.local.weights import ModelWeights, base_sha256
from workers.reasoning import reply_texts

SYSTEM = ("system", "developer")
GRACE_S = 0.5
"""Seconds that all wait for the tools of a message: rounding, and with it what is sampled, depends on the batch."""
REFILL = 4
"""One in so many messages of a batch has to end before others take their places: each change copies the cache."""


def sample_completions(
    policy: Policy,
    prompts: tuple[Tensor, Tensor, Tensor],
    transcripts: Sequence[Transcript],
    sampling: SamplingConfig,
    seed: int,
) -> None:
    """Sample the completions [B] of a policy, in an environment with their episodes.

    ``prompts`` are token ids [Q, P], their mask, and the prompt of each completion. ``max_new_tokens`` limits a turn.
    A sequence that has ended leaves the batch; one whose tools have answered goes on in it.
    """
    decoding = policy.decoding(*prompts)

    def message(row: int, decoding: Decoding, place: int) -> _Message:
        one = transcripts[row]
        turn = one.episode.turns if one.episode is not None else 0
        generator = torch.Generator().manual_seed(stream_seed(stream_seed(seed, "completion", row), "turn", turn))
        uniform_N = torch.rand(sampling.max_new_tokens, generator=generator, dtype=torch.float64).to(policy.device)
        return _Message(one, row, uniform_N, decoding, place)

    live, waiting = [message(row, decoding, row) for row in range(len(transcripts))], list[_Message]()
    while live or waiting:
        if live:
            decoding.sample(live, sampling)
        ended = [one for one in live if one.is_over]
        live = [one for one in live if not one.is_over]
        for one in ended:
            one.transcript.add(one.ids, torch.cat(one.nuclei) if one.nuclei else None)
            one.transcript.truncated = one.ids[-1] not in policy.end_ids
        acting = [one for one in ended if one.transcript.episode is not None]
        for one, text in zip(acting, policy.texts([one.ids for one in acting]) if acting else (), strict=True):
            if (episode := one.transcript.episode) is not None:
                one.answers, one.start = episode.start(text), time.monotonic()
                one.timeout_s = episode.limits.tool_timeout_s
        answered = _wait([*waiting, *acting], until_any=not live)
        waiting = [one for one in (*waiting, *acting) if one not in answered]
        read = [(one, one.transcript.answered(policy, one.answers, sampling.max_new_tokens)) for one in answered]
        continued = [(one, ids) for one, ids in read if ids]
        if late := [one for one in waiting if one in acting]:  # what has gone on or ended need not be kept for those
            moved = Decoding.of([(one.decoding, one.place) for one in late])
            for place, one in enumerate(late):
                one.decoding, one.place = moved, place
        if continued:
            longer = Decoding.of([(one.decoding, one.place) for one, _ in continued])
            longer.append([ids for _, ids in continued], fresh=[one.transcript.fresh for one, _ in continued])
            live += [message(one.row, longer, place) for place, (one, _) in enumerate(continued)]
        if live:
            decoding = Decoding.of([(one.decoding, one.place) for one in live])
            for place, one in enumerate(live):
                one.decoding, one.place = decoding, place


@dataclass(eq=False)
class _Message:
    """A message of the completion ``row``: a sequence in a batch, with a random number [N] for each of its tokens.

    ``answers`` are those of its calls, which began to be answered at ``start`` and may take ``timeout_s``.
    """

    transcript: Transcript
    row: int
    uniform_N: Tensor
    decoding: Decoding
    place: int
    ids: list[int] = field(default_factory=list)
    nuclei: list[Tensor] = field(default_factory=list)
    is_over: bool = False
    answers: Future[Answers] = field(default_factory=Future)
    start: float = 0.0
    timeout_s: float = 0.0


def _wait(messages: Sequence[_Message], *, until_any: bool) -> list[_Message]:
    """Return the messages whose tools have answered, or taken too long.

    Wait a moment for the tools of new messages; then, if ``until_any``, until those of any message have.
    """
    now = time.monotonic()
    new = [one for one in messages if one.start + GRACE_S > now]
    if new:
        wait([one.answers for one in new], min(GRACE_S, *(one.timeout_s for one in new)))
    deadlines = [one.start + one.timeout_s for one in messages]
    left = min(deadlines, default=0.0) - time.monotonic()
    if until_any and left > 0 and not any(one.answers.done() for one in messages):
        wait([one.answers for one in messages], left, FIRST_COMPLETED)
    now = time.monotonic()
    return [one for one, end in zip(messages, deadlines, strict=True) if one.answers.done() or now >= end]


class Policy:
    """A causal language model and its tokenizer. ``model`` is trained in place.

    With ``acting`` its completions are episodes in an environment, whose tools it may call. With ``server`` they are
    sampled there. ``template_options`` go to its chat template.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        name: str = "policy",
        acting: Acting | None = None,
        server: SamplingServer | None = None,
        *,
        fold_system: bool = False,
    ) -> None:
        self.acting, self.server, self.fold_system = acting, server, fold_system
        self.template_options: Mapping[str, Any] = {}
        self._id = uuid4().hex
        self.adapter: Any = None  # peft's view of the model, whose base has a name and a digest
        self.base, self.is_start = ("", ""), False
        self.model = model.eval()
        use_grouped_attention(model)
        self.tokenizer = tokenizer
        self.name = name
        if tokenizer.eos_token_id is None:
            message = f"the tokenizer of {name!r} has no end token: completions would never end"
            raise InvalidError(message, hint="set `eos_token` in its tokenizer_config.json")
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
        fold_system: bool = False,
        lora: LoraConfig | None = None,
        seed: int = 0,
    ) -> Self:
        """Load ``model``: ``embedded``, a folder, or a name on the Hugging Face hub.

        ``dtype`` is by default bfloat16 on GPUs and CPUs with AMX, else float32. With ``lora`` a fresh adapter
        is trained, which depends on ``seed``, and the model's own weights stay.
        """
        loaded, tokenizer = open_pretrained(model, getattr(torch, dtype or default_dtype(device or "")))
        policy = cls(loaded.to(device or default_device()), tokenizer, model, acting, server, fold_system=fold_system)
        if lora is not None:
            policy.adapter = add_adapter(policy.model, lora, seed)
            policy.base = model, base_sha256(model, model_folder(ModelWeights(model)))
        return policy

    def start(self) -> Policy:
        """Return the policy that it is now, before it is trained: without its adapter, if it has one, else a copy."""
        start = copy.copy(self)
        start.name, start._id, start.is_start = f"{self.name} (reference)", uuid4().hex, True
        if self.adapter is None:
            start.model = copy.deepcopy(self.model).requires_grad_(False)
        return start

    @property
    def device(self) -> torch.device:
        """Device of the model's weights."""
        return torch.device(self.model.device)

    @property
    def version(self) -> str:
        """A text that changes whenever the weights do, and that no other policy has."""
        return f"{self._id}-{sum(weight._version for weight in self.model.parameters())}"

    def save(self, folder: Path) -> None:
        """Write safetensors, an adapter merged, and the tokenizer to ``folder``; in ``adapter`` the adapter alone."""
        transformers_logging.disable_progress_bar()
        self.model.save_pretrained(folder, state_dict=merged_weights(self.model) if self.adapter else None)
        if self.adapter:
            save_adapter(self.adapter, folder / "adapter", *self.base)
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
        tools = self.acting.tools if self.acting else ()
        ids = prompt_ids(self.tokenizer, prompt, tools, self.template_options, fold_system=self.fold_system)
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
        ids_QP, mask_QP = self.encode(prompts, sampling.max_new_tokens)
        prompt_of_B = torch.arange(len(prompts), device=self.device).repeat_interleave(group_size)
        acting, asked = self.acting, (ids_QP, mask_QP, prompt_of_B)
        transcripts = [
            Transcript(begin(acting.environment, prompts[place], acting.limits) if acting else None)
            for place in prompt_of_B.tolist()
        ]
        sample = sample_completions if self.server is None else self.server.sample
        sample(self, asked, transcripts, sampling, seed)
        reports = [one.episode.report for one in transcripts if one.episode is not None]
        return rollouts_of(self, asked, transcripts, reports or self.texts([one.ids for one in transcripts]))

    def decoding(self, ids_QP: Tensor, mask_QP: Tensor, prompt_of_B: Tensor) -> Decoding:
        """Process each prompt once, and return the completions that begin after them."""
        cache = DynamicCache(config=self.model.config)  # its layers of full attention grow in place
        cache.layers = [GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
        logits_QV = self.forward(ids_QP, mask_QP, cache, keep=1).squeeze(1)
        cache.batch_select_indices(prompt_of_B)
        mask_BP = mask_QP[prompt_of_B]
        grows = all(type(layer) is GrowingLayer for layer in cache.layers)
        return Decoding(self, cache, mask_BP, logits_QV[prompt_of_B], mask_BP.sum(-1), grows)

    def texts(self, rows: Sequence[Sequence[int]]) -> tuple[str, ...]:
        """Return the texts of tokens, with U+FFFD for characters that a service cannot store."""
        return tuple(map(storable, reply_texts(self.tokenizer, rows)))

    def logprobs(self, rollouts: Rollouts, temperature: float) -> tuple[Tensor, Tensor]:
        """Return the log-probability of every completion token and the entropy of its distribution, in nats.

        Both are of the distribution that was sampled from: at ``temperature``, restricted to the rollouts' nuclei
        where there are any. Both are [B, T], 0 at padding and at tokens that the
        policy did not write; the entropy has no gradient.
        """
        begun = self.decoding(rollouts.prompt_ids_QP, rollouts.prompt_mask_QP, rollouts.prompt_of_B)
        written_BT, nucleus_BTK = rollouts.written_BT, rollouts.nucleus_BTK
        logits_NV = begun.logits_BV[written_BT[:, 0]]
        if rollouts.ids_BT.shape[1] > 1:
            mask_BT = torch.cat([begun.mask_BC, rollouts.mask_BT[:, :-1]], dim=-1)
            context_BT = None if rollouts.context_BT is None else rollouts.context_BT[:, :-1]
            # The head gets the hidden states of tokens that the policy wrote alone, [1, N, V]: tools and padding write
            # most of an episode's, and what a model does to its logits stays.
            hook = self.model.get_output_embeddings().register_forward_pre_hook(
                lambda _, inputs: (inputs[0][written_BT[:, 1:]].unsqueeze(0), *inputs[1:])
            )
            try:
                rest_1NV = self.forward(rollouts.ids_BT[:, :-1], mask_BT, begun.cache, context_BT=context_BT)
            finally:
                hook.remove()
            logits_NV = torch.cat([logits_NV, rest_1NV.squeeze(0)])
        first_BT, rest_BT = written_BT.clone(), written_BT.clone()
        first_BT[:, 1:], rest_BT[:, :1] = False, False
        places = torch.cat([first_BT.nonzero(), rest_BT.nonzero()]).unbind(-1)
        nucleus_NK = None if nucleus_BTK is None else nucleus_BTK[places]
        logp_N, entropy_N = token_logprobs(logits_NV, rollouts.ids_BT[places], temperature, nucleus_NK)
        zeros_BT = logp_N.new_zeros(written_BT.shape)
        return zeros_BT.index_put(places, logp_N), zeros_BT.index_put(places, entropy_N)

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
        with self.adapter.disable_adapter() if self.adapter and self.is_start else nullcontext():
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


def prompt_ids(
    tokenizer: Any,
    prompt: Prompt,
    tools: Sequence[Tool] = (),
    template_options: Mapping[str, Any] = NO_OPTIONS,
    *,
    fold_system: bool = False,
) -> list[int]:
    """Return the tokens of a prompt with its documents.

    A chat template without tools has them in the system message; with ``fold_system`` that begins the first user turn.
    Without a chat template the prompt is the plain text as its tokenizer begins texts, such as with BOS.

    Raises:
        InvalidError: the chat template refuses the messages, for example a system message.
    """
    described = "tools" in (tokenizer.chat_template or "")
    shown = (prompt if described or not tools else with_tools(prompt, tools)).with_documents
    text = shown.text
    if tokenizer.chat_template:
        options = dict(template_options) | {"add_generation_prompt": True, "tokenize": False}
        options |= {"tools": [tool.schema for tool in tools]} if tools and described else {}
        system = "\n\n".join(message.text for message in shown.messages if message.role in SYSTEM)
        messages = [message.model_dump(exclude_none=True) for message in shown.messages]
        if fold_system and system:
            messages = [message for message in messages if message["role"] not in SYSTEM]
            user = next((message for message in messages if message["role"] == "user"), None)
            if user is None:
                messages.insert(0, user := {"role": "user", "content": ""})
            user["content"] = "\n\n".join(filter(None, (system, user["content"])))
        try:
            text = tokenizer.apply_chat_template(messages, **options)
        except Exception as error:  # a template may do anything
            roles = ", ".join(message["role"] for message in messages)
            hint = (
                "set policy.fold_system = true" if system and not fold_system else "change the prompt or the template"
            )
            message = f"the policy's chat template refuses the messages ({roles}) of {prompt.text[:60]!r}: {error}"
            raise InvalidError(message, hint=hint, path="policy.fold_system") from error
    ids: list[int] = tokenizer(text, add_special_tokens=not tokenizer.chat_template)["input_ids"]
    return ids[:-1] if not tokenizer.chat_template and ids[-1:] == [tokenizer.eos_token_id] else ids


def context_of(config: Any) -> float:
    """Return the tokens of a model's context; infinity where its configuration does not say."""
    return getattr(config.get_text_config(), "max_position_embeddings", None) or math.inf


NAME = "grouped_sdpa"


def use_grouped_attention(model: Any) -> None:
    """Make ``model`` use grouped attention, where it would use plain scaled dot products."""
    if model.config._attn_implementation == "sdpa":
        AttentionInterface.register(NAME, grouped_attention)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        model.set_attn_implementation(NAME)


def separate_contexts(mask_BL: Tensor, context_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Return what the last T tokens see [B, 1, T, L], and their positions [B, T].

    They see what is before them and in the same context, and all that is before the T tokens. A position is the number
    of tokens that are seen: a context begins after the prompt.
    """
    length = context_BT.shape[1]
    same_BTT = (context_BT.unsqueeze(-1) == context_BT.unsqueeze(-2)).tril() & mask_BL[:, None, -length:]
    prompt_BTL = mask_BL[:, None, :-length].expand(-1, length, -1)
    seen_BTL = torch.cat([prompt_BTL, same_BTT], dim=-1)
    return seen_BTL.unsqueeze(1), (seen_BTL.sum(-1) - 1).clamp(min=0)


def grouped_attention(
    module: torch.nn.Module,
    query_BHTD: Tensor,
    key_BKLD: Tensor,
    value_BKLD: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute what ``sdpa_attention_forward`` computes, and call it where this shape does not apply.

    It does not apply without groups, with a mask for each head, or with implied causality instead of a mask. The result
    is [B, T, H, D].
    """
    batch, heads, length, size = query_BHTD.shape
    group = heads // key_BKLD.shape[1]
    plain = length == 1 if attention_mask is None else attention_mask.shape[1] == 1
    if group == 1 or not plain or kwargs.get("position_bias") is not None or kwargs.get("cache") is not None:
        output: tuple[Tensor, None] = sdpa_attention_forward(
            module, query_BHTD, key_BKLD, value_BKLD, attention_mask, **kwargs
        )
        return output
    mask = attention_mask if attention_mask is None or length == 1 else attention_mask.repeat(1, 1, group, 1)
    folded = torch.nn.functional.scaled_dot_product_attention(
        query_BHTD.reshape(batch, -1, group * length, size),
        key_BKLD,
        value_BKLD,
        attn_mask=mask,
        dropout_p=kwargs.get("dropout", 0.0),
        scale=kwargs.get("scaling"),
    )
    return folded.reshape(batch, heads, length, -1).transpose(1, 2).contiguous(), None


ROOM = 64
"""Tokens that a layer grows by."""


class GrowingLayer(DynamicLayer):  # type: ignore[misc]  # transformers has no types for it
    """A layer whose ``keys`` and ``values`` are views of buffers with room after them.

    Where other tensors are assigned to ``keys`` and ``values``, as by a selection of rows, they are copied at the next
    token. With gradients it is a plain layer, since what is written in place has no derivative.
    """

    keys: Tensor
    values: Tensor
    buffers: tuple[Tensor, Tensor]
    views: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)

    def update(self, key_BKTD: Tensor, value_BKTD: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append the keys and values of new tokens; return all of them [B, K, L, D]."""
        before, length = self.get_seq_length(), self.get_seq_length() + key_BKTD.shape[-2]
        if torch.is_grad_enabled() or not before:
            appended: tuple[Tensor, Tensor] = super().update(key_BKTD, value_BKTD, *args, **kwargs)
            return appended
        is_own = self.keys is self.views[0] and self.values is self.views[1]
        if not is_own or length > self.buffers[0].shape[-2]:
            grown = [
                states.new_empty((*states.shape[:-2], length + ROOM, states.shape[-1]))
                for states in (self.keys, self.values)
            ]
            for buffer, states in zip(grown, (self.keys, self.values), strict=True):
                buffer[..., : states.shape[-2], :] = states
            self.buffers = grown[0], grown[1]
        keys, values = self.buffers
        keys[..., before:length, :], values[..., before:length, :] = key_BKTD, value_BKTD
        self.keys, self.values = self.views = keys[..., :length, :], values[..., :length, :]
        return self.views


@dataclass(eq=False)
class Decoding:
    """Keys and values of a batch, and the logits of its next tokens [B, V]. The mask is True at a token.

    ``prompt_B`` are the numbers of tokens of prompts. Where it ``grows``, all layers hold every token: some may go.
    """

    policy: Policy
    cache: DynamicCache
    mask_BC: Tensor
    logits_BV: Tensor
    prompt_B: Tensor
    grows: bool

    def sample(self, messages: Sequence[_Message], sampling: SamplingConfig) -> None:
        """Sample tokens of messages [B], until some of them end or have ``max_new_tokens``."""
        ends, over_B = self.policy.end_ids, torch.zeros_like(self.mask_BC[:, 0])
        uniform_BN = torch.stack([one.uniform_N for one in messages])
        length_B = torch.tensor([len(one.ids) for one in messages], device=over_B.device)
        enough = math.ceil(len(messages) / REFILL) if self.grows else len(messages)
        tokens: list[Tensor] = []
        masks: list[Tensor] = []
        nuclei: list[Tensor] = []
        over = 0
        while over < enough:
            uniform_B1 = uniform_BN.gather(-1, length_B.clamp(max=sampling.max_new_tokens - 1).unsqueeze(-1))
            token_B, nucleus_BK = sample_tokens(self.logits_BV, sampling.temperature, sampling.top_p, uniform_B1)
            tokens.append(torch.where(over_B, ends[0], token_B))
            masks.append(~over_B)
            if nucleus_BK is not None:
                nuclei.append(nucleus_BK)
            length_B = length_B + masks[-1]
            over_B = over_B | torch.isin(token_B, ends) | (length_B == sampling.max_new_tokens)
            over = int(over_B.sum())
            if over == len(messages) and messages[0].transcript.episode is None:
                break
            self.mask_BC = torch.cat([self.mask_BC, masks[-1].unsqueeze(-1)], dim=-1)
            logits_B1V = self.policy.forward(tokens[-1].unsqueeze(-1), self.mask_BC, self.cache, keep=1)
            self.logits_BV = logits_B1V.squeeze(1)
        if self.logits_BV.isnan().any():
            raise NonFiniteError("the policy computes NaN", hint=LOWER_LR)
        ids_BN, counts = torch.stack(tokens, dim=-1).tolist(), torch.stack(masks).sum(0).tolist()
        nucleus_BNK = torch.stack(nuclei, dim=1) if nuclei else None
        for place, (one, is_over) in enumerate(zip(messages, over_B.tolist(), strict=True)):
            one.ids, one.is_over = one.ids + ids_BN[place][: counts[place]], is_over
            one.nuclei += [] if nucleus_BNK is None else [nucleus_BNK[place, : counts[place]]]

    @staticmethod
    def of(rows: Sequence[tuple[Decoding, int]]) -> Decoding:
        """Return a batch of sequences of other batches, each named by its place there, without what they do not see."""
        widest = max((batch for batch, _ in rows), key=lambda batch: batch.mask_BC.shape[1])
        seen = [batch.mask_BC[place] for batch, place in rows]
        chosen = [one.nonzero().flatten() for one in seen] if widest.grows else None
        cache = copy.copy(widest.cache)
        cache.layers = [copy.copy(layer) for layer in cache.layers]
        for number, layer in enumerate(cache.layers):
            buffers = []
            for name in ("keys", "values"):
                states = [getattr(batch.cache.layers[number], name)[place] for batch, place in rows]
                if chosen is not None:
                    states = [one.index_select(1, at) for one, at in zip(states, chosen, strict=True)]
                heads, _, size = states[0].shape
                length = max(one.shape[1] for one in states)
                buffer = states[0].new_zeros((len(rows), heads, length + ROOM, size))
                for row, one in zip(buffer, states, strict=True):  # at the beginning the mask leaves out what is 0
                    row[:, length - one.shape[1] : length] = one
                buffers.append(buffer)
            layer.keys, layer.values = (one[..., :length, :] for one in buffers)
            if isinstance(layer, GrowingLayer):
                layer.buffers, layer.views = (buffers[0], buffers[1]), (layer.keys, layer.values)
        masks = [one[one] for one in seen] if chosen is not None else seen
        return Decoding(
            widest.policy,
            cache,
            pad_sequence(masks, batch_first=True, padding_side="left"),
            torch.stack([batch.logits_BV[place] for batch, place in rows]),
            torch.stack([batch.prompt_B[place] for batch, place in rows]),
            widest.grows,
        )

    def append(self, rows: Sequence[Sequence[int]], fresh: Sequence[bool]) -> None:
        """Extend each sequence by given tokens, at least one; of a ``fresh`` one these see the prompt alone."""
        device = self.mask_BC.device
        prompt_BC = self.mask_BC.cumsum(-1) <= self.prompt_B.unsqueeze(-1)
        self.mask_BC &= prompt_BC | ~torch.tensor(fresh, device=device).unsqueeze(-1)
        ids = [torch.tensor(row, device=device) for row in rows]
        masks = [torch.ones_like(row, dtype=torch.bool) for row in ids]
        # on the left, so that the last column has the last token of every sequence
        ids_BN = pad_sequence(ids, batch_first=True, padding_side="left")
        mask_BN = pad_sequence(masks, batch_first=True, padding_side="left")
        self.mask_BC = torch.cat([self.mask_BC, mask_BN], dim=-1)
        self.logits_BV = self.policy.forward(ids_BN, self.mask_BC, self.cache, keep=1).squeeze(1)


CHUNK = 2**23
"""Logits converted to float32 at a time (32 MiB)."""


def sample_tokens(
    logits_BV: Tensor, temperature: float, top_p: float, uniform_B1: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Sample one token for each row, by inverting the cumulative distribution.

    The nucleus of ``top_p`` is the smallest set of most probable tokens whose mass reaches it (arXiv 1904.09751).
    ``uniform_B1`` are random numbers in [0, 1).

    Returns:
        Token ids [B], and each row's nucleus [B, K] as packed bits (uint8), the lowest first; None if ``top_p`` is 1.
    """
    probs_BV = (logits_BV.float() / temperature).softmax(-1)
    order_BV, device = None, probs_BV.device
    if top_p < 1.0:
        probs_BV, order_BV = probs_BV.sort(-1, descending=True)
    cdf_BV = probs_BV.cumsum(-1).double()
    last_B1 = torch.full_like(uniform_B1, cdf_BV.shape[-1] - 1, dtype=torch.long)
    if order_BV is not None:
        last_B1 = torch.minimum((cdf_BV < top_p).sum(-1, keepdim=True), last_B1)
    # right=True: a token of probability 0 has no width in the cumulative distribution, and is never sampled
    place_B1 = torch.searchsorted(cdf_BV, uniform_B1 * cdf_BV.gather(-1, last_B1), right=True)
    place_B1 = torch.minimum(place_B1, last_B1)
    if order_BV is None:
        return place_B1.squeeze(-1), None
    kept_BV = torch.arange(cdf_BV.shape[-1], device=cdf_BV.device) <= last_B1
    nucleus_BV = torch.zeros_like(kept_BV).scatter(-1, order_BV, kept_BV)
    padded = pad(nucleus_BV.to(torch.uint8), (0, -nucleus_BV.shape[-1] % 8))
    bits_BK8 = padded.view(len(padded), -1, 8) << torch.arange(8, dtype=torch.uint8, device=device)
    return order_BV.gather(-1, place_B1).squeeze(-1), bits_BK8.sum(-1, dtype=torch.uint8)


def token_logprobs(
    logits: Tensor, ids: Tensor, temperature: float, nucleus: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the log-probability of each token and the entropy of the distribution that it was sampled from, in nats.

    The distribution is softmax(logits [..., V] / temperature), restricted to the nucleus [..., K] of `sample_tokens`
    and renormalised where there is one. A token outside its nucleus gets -inf. The entropies carry no gradient.
    """
    logp_N, entropy_N = _TokenLogprobs.apply(  # type: ignore[no-untyped-call]
        logits.flatten(0, -2), ids.flatten(), temperature, None if nucleus is None else nucleus.flatten(0, -2)
    )
    return logp_N.view_as(ids), entropy_N.view_as(ids)


class _TokenLogprobs(torch.autograd.Function):
    """Chunked log-softmax. A 49k vocabulary makes the logits the largest tensor of a step.

    They stay in the model's own type; the softmax is computed in float32 (float64 for float64 logits) over a few
    positions at a time, and computed again for the gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, logits_NV: Tensor, ids_N: Tensor, temperature: float, nucleus_NK: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        precise = torch.promote_types(logits_NV.dtype, torch.float32)
        logp_N = torch.empty(len(ids_N), dtype=precise, device=logits_NV.device)
        log_z_N, entropy_N = torch.empty_like(logp_N), torch.empty_like(logp_N)
        for at, scaled in _scaled(logits_NV, precise, temperature, nucleus_NK):
            log_z_N[at] = scaled.logsumexp(-1)
            logp_N[at] = scaled.gather(-1, ids_N[at].unsqueeze(-1)).squeeze(-1) - log_z_N[at]
            probs = (scaled - log_z_N[at].unsqueeze(-1)).exp_()
            if nucleus_NK is not None:
                scaled.masked_fill_(scaled == -torch.inf, 0.0)  # 0 · -inf is not a number
            entropy_N[at] = log_z_N[at] - torch.linalg.vecdot(probs, scaled)
        ctx.save_for_backward(logits_NV, ids_N, log_z_N, nucleus_NK)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropy_N)
        return logp_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        """Return the gradient of the logits: (onehot - softmax over the nucleus) / temperature."""
        logits_NV, ids_N, log_z_N, nucleus_NK = ctx.saved_tensors
        scale_N = grads[0] / ctx.temperature
        grad_NV = torch.empty_like(logits_NV)
        for at, scaled in _scaled(logits_NV, log_z_N.dtype, ctx.temperature, nucleus_NK):
            grad = (scaled - log_z_N[at].unsqueeze(-1)).exp_().mul_(-scale_N[at].unsqueeze(-1))
            grad.scatter_add_(-1, ids_N[at].unsqueeze(-1), scale_N[at].unsqueeze(-1))
            grad_NV[at] = grad
        return grad_NV, None, None, None


def _scaled(
    logits_NV: Tensor, dtype: torch.dtype, temperature: float, nucleus_NK: Tensor | None
) -> Iterator[tuple[slice, Tensor]]:
    """Yield logits by temperature for a few positions at a time, -inf outside the nucleus."""
    positions, vocabulary = logits_NV.shape
    bits = torch.arange(8, dtype=torch.uint8, device=logits_NV.device)
    size = max(1, CHUNK // vocabulary)
    for start in range(0, positions, size):
        at = slice(start, start + size)
        scaled = logits_NV[at].to(dtype) / temperature
        if nucleus_NK is not None:
            kept_nV = ((nucleus_NK[at].unsqueeze(-1) >> bits) & 1).flatten(-2)[:, :vocabulary].bool()
            scaled = scaled.masked_fill_(~kept_nV, -torch.inf)
        yield at, scaled
