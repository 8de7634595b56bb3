"""The model that is trained: its prompts, its sampled completions, and its log-probabilities of tokens.

What several begin with is processed once, such as the tools, a prompt, the same first call and its result: in sampling
(`Decoding`) and in training (`token_tree`).

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
from itertools import zip_longest
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
from trainer.policies.rollouts import (
    NO_OPTIONS,
    Rollouts,
    Transcript,
    rollouts_of,
    separate_sequences,
    token_tree,
)
from trainer.policies.sampling_server import SamplingServer
from workers.engines.local.models import default_device, default_dtype, end_ids, model_folder, open_pretrained
from workers.engines.local.prefix_tree import shared_length
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

    def message(row: int, decoding: Decoding, place: int) -> _Message:
        one = transcripts[row]
        turn = one.episode.turns if one.episode is not None else 0
        generator = torch.Generator().manual_seed(stream_seed(stream_seed(seed, "completion", row), "turn", turn))
        uniform_N = torch.rand(sampling.max_new_tokens, generator=generator, dtype=torch.float64).to(policy.device)
        return _Message(one, row, uniform_N, decoding, place)

    decoding, waiting = policy.decoding(*prompts[:2]), list[_Message]()
    live = [message(row, decoding, place) for row, place in enumerate(prompts[2].tolist())]
    while live or waiting:
        if live:
            live[0].decoding.sample(live, sampling)
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
            Decoding.of(late)
        if continued:
            longer = Decoding.of([one for one, _ in continued], [(ids, one.transcript.fresh) for one, ids in continued])
            live += [message(one.row, longer, one.place) for one, _ in continued]
        if live:
            Decoding.of(live)


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
        if torch.backends.cpu.get_cpu_capability() == "AVX2" and self.device.type == "cpu":
            for layer in model.modules():
                layer.__class__ = FewRowsLinear if type(layer) is torch.nn.Linear else type(layer)
        # tokens of a pass in which attention to all takes as long as the weights: 24 d² operations against 4 d a token
        self.width = 6.0 * model.config.get_text_config().hidden_size
        # in each layer all tokens before one are seen: there are no sliding windows, and no states
        self.sees_all = all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers)
        if acting is not None and acting.limits.notes and not self.sees_all:
            message = f"the layers of {name!r} do not see all tokens: no context can begin with a note"
            raise InvalidError(message, hint="choose another model, or leave out environment.notes")
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

    def decoding(self, ids_QP: Tensor, mask_QP: Tensor) -> Decoding:
        """Process prompts, what all begin with once, and return the sequences that begin after them."""
        cache = DynamicCache(config=self.model.config)  # its layers of full attention grow in place
        cache.layers = [GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
        rows = [ids[mask].tolist() for ids, mask in zip(ids_QP, mask_QP, strict=True)]
        begun = shared_length(rows) if self.sees_all else 0
        if begun:  # such as the tools, in the system message
            ids_1N = torch.tensor([rows[0][:begun]], device=ids_QP.device)
            self.forward(ids_1N, torch.ones_like(ids_1N), past_key_values=cache, logits_to_keep=1)
            cache.batch_select_indices(torch.zeros_like(ids_QP[:, 0]))
        place_P = torch.arange(ids_QP.shape[1], device=ids_QP.device)
        mask_QP = (place_P < begun) | (mask_QP.cumsum(-1) > begun)
        logits_Q1V = self.forward(ids_QP[:, begun:], mask_QP, past_key_values=cache, logits_to_keep=1)
        return Decoding(self, cache, mask_QP, logits_Q1V.squeeze(1), mask_QP.sum(-1), self.sees_all)

    def texts(self, rows: Sequence[Sequence[int]]) -> tuple[str, ...]:
        """Return the texts of tokens, with U+FFFD for characters that a service cannot store."""
        return tuple(map(storable, reply_texts(self.tokenizer, rows)))

    def logprobs(self, rollouts: Rollouts, temperature: float) -> tuple[Tensor, Tensor]:
        """Return the log-probability of every completion token and the entropy of its distribution, in nats.

        Both are of the distribution that was sampled from: at ``temperature``, restricted to the rollouts' nuclei
        where there are any. Both are [B, T], 0 at padding and at tokens that the
        policy did not write; the entropy has no gradient.
        """
        shares = len(rollouts.ids_BT) > 1 or rollouts.context_BT is not None
        tree = token_tree(rollouts) if self.sees_all and shares else separate_sequences(rollouts)
        written_BT, nucleus_BTK = rollouts.written_BT, rollouts.nucleus_BTK
        places_BT = written_BT.nonzero(as_tuple=True)
        # Each token once that the policy wrote, and the completion token that stands for it.
        token_U, token_of_N = torch.unique(tree.place_BT[places_BT], return_inverse=True)
        order_N = torch.arange(len(token_of_N), device=self.device)
        first_U = torch.full_like(token_U, len(order_N)).scatter_reduce_(0, token_of_N, order_N, "amin")
        before_U = tree.before_BT[places_BT][first_U]
        # The head gets the hidden states before these alone, [1, U, V]: tools and prompts write most of an episode's
        # tokens, and what a model does to its logits stays.
        hook = self.model.get_output_embeddings().register_forward_pre_hook(
            lambda _, inputs: (inputs[0].flatten(0, 1)[before_U].unsqueeze(0), *inputs[1:])
        )
        mask = tree.seen
        if mask.dim() == 4:  # what is added to attention scores: every implementation of attention takes it
            mask = torch.zeros(mask.shape, dtype=self.model.dtype, device=self.device).masked_fill_(~mask, -torch.inf)
        try:
            logits_UV = self.forward(tree.ids_RN, mask, tree.position_RN, use_cache=False).squeeze(0)
        finally:
            hook.remove()
        nucleus_UK = None if nucleus_BTK is None else nucleus_BTK[places_BT][first_U]
        ids_U = rollouts.ids_BT[places_BT][first_U]
        logp_U, entropy_U = token_logprobs(logits_UV, ids_U, temperature, nucleus_UK)
        zeros_BT = logp_U.new_zeros(written_BT.shape)
        logp_BT = zeros_BT.index_put(places_BT, logp_U[token_of_N])
        return logp_BT, zeros_BT.index_put(places_BT, entropy_U[token_of_N])

    def forward(self, ids_BT: Tensor, mask: Tensor, position_BT: Tensor | None = None, **options: Any) -> Tensor:
        """Return the logits after ``ids_BT`` [B, T, V].

        The mask [B, L] covers all tokens up to and including these, or says what each sees [B, 1, T, L] where they have
        positions of their own. ``options`` are the model's.
        """
        if position_BT is None:
            position_BT, mask = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids_BT.shape[1] :], mask.long()
        with self.adapter.disable_adapter() if self.adapter and self.is_start else nullcontext():
            output = self.model(input_ids=ids_BT, attention_mask=mask, position_ids=position_BT, **options)
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


def grouped_attention(
    module: torch.nn.Module,
    query_BHTD: Tensor,
    key_BKLD: Tensor,
    value_BKLD: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute what ``sdpa_attention_forward`` computes, and call it where this shape does not apply.

    It does not apply without groups, with a mask for each head, with implied causality instead of a mask, or in a pass
    without a cache, whose mask would be copied for each layer. The result is [B, T, H, D].
    """
    batch, heads, length, size = query_BHTD.shape
    group = heads // key_BKLD.shape[1]
    plain = length == 1 if attention_mask is None else attention_mask.shape[1] == 1 and length < key_BKLD.shape[2]
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


class FewRowsLinear(torch.nn.Linear):
    """Multiplies up to 32 rows as W xᵀ: decoding on a CPU with AVX2 takes 0.6 to 0.9 of the time of x Wᵀ."""

    def forward(self, input: Tensor) -> Tensor:
        """Return x Wᵀ + b, as `torch.nn.Linear` does."""
        if torch.is_grad_enabled() or input.numel() > 32 * self.in_features or self.bias is not None:
            return super().forward(input)
        return (self.weight @ input.flatten(0, -2).T).T.reshape(*input.shape[:-1], -1)


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
    Messages with the same tokens so far share a sequence, and part where these begin to differ.
    """

    policy: Policy
    cache: DynamicCache
    mask_BC: Tensor
    logits_BV: Tensor
    prompt_B: Tensor
    grows: bool

    def sample(self, messages: Sequence[_Message], sampling: SamplingConfig) -> None:
        """Sample tokens of messages [M], until some of them end or have ``max_new_tokens``."""
        ends, device = self.policy.end_ids, self.mask_BC.device
        uniform_MN = torch.stack([one.uniform_N for one in messages])
        place_M = torch.tensor([one.place for one in messages], device=device)
        length_M = torch.tensor([len(one.ids) for one in messages], device=device)
        over_M = torch.zeros_like(place_M, dtype=torch.bool)
        enough = math.ceil(len(messages) / REFILL) if self.grows else len(messages)
        tokens: list[Tensor] = []
        masks: list[Tensor] = []
        nuclei: list[Tensor] = []
        over = 0
        while over < enough:
            uniform_M1 = uniform_MN.gather(-1, length_M.clamp(max=sampling.max_new_tokens - 1).unsqueeze(-1))
            logits_MV = self.logits_BV[place_M]
            token_M, nucleus_MK = sample_tokens(logits_MV, sampling.temperature, sampling.top_p, uniform_M1)
            tokens.append(torch.where(over_M, ends[0], token_M))
            masks.append(~over_M)
            if nucleus_MK is not None:
                nuclei.append(nucleus_MK)
            length_M = length_M + masks[-1]
            over_M = over_M | torch.isin(token_M, ends) | (length_M == sampling.max_new_tokens)
            over = int(over_M.sum())
            if over == len(messages) and messages[0].transcript.episode is None:
                break
            pair_M2 = torch.stack([place_M, tokens[-1]], dim=-1)
            pair_B2, place_M = torch.unique(pair_M2, dim=0, return_inverse=True)
            if pair_B2[:, 0].tolist() != list(range(len(self.mask_BC))):  # some part, or are no longer needed
                self.cache.batch_select_indices(pair_B2[:, 0])
                self.mask_BC, self.prompt_B = self.mask_BC[pair_B2[:, 0]], self.prompt_B[pair_B2[:, 0]]
            is_token_B = torch.zeros_like(pair_B2[:, 0], dtype=torch.bool).index_put((place_M,), masks[-1])
            self.mask_BC = torch.cat([self.mask_BC, is_token_B.unsqueeze(-1)], dim=-1)
            cached = {"past_key_values": self.cache, "logits_to_keep": 1}
            self.logits_BV = self.policy.forward(pair_B2[:, 1:], self.mask_BC, **cached).squeeze(1)
        if self.logits_BV.isnan().any():
            raise NonFiniteError("the policy computes NaN", hint=LOWER_LR)
        ids_MN, counts = torch.stack(tokens, dim=-1).tolist(), torch.stack(masks).sum(0).tolist()
        nucleus_MNK = torch.stack(nuclei, dim=1) if nuclei else None
        for row, (one, is_over, place) in enumerate(zip(messages, over_M.tolist(), place_M.tolist(), strict=True)):
            one.ids, one.is_over, one.place = one.ids + ids_MN[row][: counts[row]], is_over, place
            one.nuclei += [] if nucleus_MNK is None else [nucleus_MNK[row, : counts[row]]]

    @staticmethod
    def of(messages: Sequence[_Message], answers: Sequence[tuple[Sequence[int], bool]] = ()) -> Decoding:
        """Move messages to a batch of their own, without what its sequences do not see, and return it.

        Each may be followed by the tokens of an answer, at least one; with True these see the prompt alone.
        """
        keys = [
            (one.decoding, one.place, *((tuple(answer[0]), answer[1]) if answer else ()))
            for one, answer in zip_longest(messages, answers)
        ]
        places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        rows = [(key[0], key[1]) for key in places]
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
        batch = Decoding(
            widest.policy,
            cache,
            pad_sequence(masks, batch_first=True, padding_side="left"),
            torch.stack([batch.logits_BV[place] for batch, place in rows]),
            torch.stack([batch.prompt_B[place] for batch, place in rows]),
            widest.grows,
        )
        for message, key in zip(messages, keys, strict=True):
            message.decoding, message.place = batch, places[key]
        if answers:
            fresh_B1 = torch.tensor([[key[3]] for key in places], device=batch.mask_BC.device)
            batch.mask_BC &= (batch.mask_BC.cumsum(-1) <= batch.prompt_B.unsqueeze(-1)) | ~fresh_B1
            ids = [torch.tensor(key[2], device=fresh_B1.device) for key in places]
            masks = [torch.ones_like(row, dtype=torch.bool) for row in ids]
            # on the left, so that the last column has the last token of every sequence
            ids_BN, mask_BN = (pad_sequence(some, batch_first=True, padding_side="left") for some in (ids, masks))
            batch.mask_BC = torch.cat([batch.mask_BC, mask_BN], dim=-1)
            logits_B1V = batch.policy.forward(ids_BN, batch.mask_BC, past_key_values=cache, logits_to_keep=1)
            batch.logits_BV = logits_B1V.squeeze(1)
        return batch


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
