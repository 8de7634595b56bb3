"""Tokens: prompts in the chat template, and the log-probabilities and draws of next tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rubricsvc.core.prompt import Completion, Message, Prompt, with_documents
from rubricsvc.errors import InvalidError
from trainer.environments.environment import Tool
from trainer.environments.tool_calls import call_line, notes_of, took_note, with_tools


def prompt_ids(tokenizer: Any, prompt: Prompt, tools: Sequence[Tool] = ()) -> list[int]:
    """Return the tokens of a prompt with its documents. Without a chat template the plain text is the prompt.

    A chat template without tools has them in the system message.
    """
    described = "tools" in (tokenizer.chat_template or "")
    shown = with_documents(prompt if described or not tools else with_tools(prompt, tools))
    text = shown.text
    if tokenizer.chat_template:
        options = {"tools": [tool.schema for tool in tools]} if tools and described else {}
        messages = [message.model_dump(exclude_none=True) for message in shown.messages]
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **options)
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


class Tokens(NamedTuple):
    """The tokens of a completion, which of them tools answered, and the number of the context of each."""

    ids: list[int]
    given: list[bool]
    contexts: list[int]


def transcript(tokenizer: Any, completion: Completion, *, notes: bool = False) -> Tokens:
    """Return the tokens of a completion as a policy would have sampled it.

    An assistant message that follows another one is left out: it repeats the report of a call. With ``notes`` a note
    begins another context.
    """
    messages = completion.messages or (Message(role="assistant", content=completion.text),)
    ids: list[int] = []
    given: list[bool] = []
    contexts: list[int] = []
    seen, context = 0, 0
    for from_tools, group in groupby(messages, key=lambda message: message.role == "tool"):
        step = list(group)
        seen += len(step)
        if from_tools and notes and took_note(step):
            part, context = fresh_ids(tokenizer, messages[:seen]), context + 1
        elif from_tools:
            part = answer_ids(tokenizer, step)
        else:
            message = step[0]
            calls = "\n".join(call_line(call) for call in message.tool_calls or ())
            text = "\n".join(filter(None, (message.content, calls)))
            part = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        ids += part
        given += [from_tools] * len(part)
        contexts += [context] * len(part)
    return Tokens(ids, given, contexts)


def fresh_ids(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """Return the tokens that follow the prompt in a fresh context: those of the notes of a trajectory so far."""
    return transcript(tokenizer, Completion(messages=notes_of(messages))).ids


def answer_ids(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """Return the tokens between the end token of a message and the policy's next one: the messages of tools."""
    if not tokenizer.chat_template:
        text = "".join(f"\n{message.text}\n" for message in messages)
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])
    begun = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
    answers = [message.model_dump(exclude_none=True) for message in messages]
    before = tokenizer.apply_chat_template(begun, tokenize=False)
    after = tokenizer.apply_chat_template([*begun, *answers], add_generation_prompt=True, tokenize=False)
    if not after.startswith(before):
        raise InvalidError(
            "the policy's chat template changes earlier messages when a tool answers",
            hint="use a model whose template only appends, or change the template",
        )
    after_end = before.rpartition(tokenizer.eos_token)[2] if tokenizer.eos_token in before else ""
    ids: list[int] = tokenizer(after_end + after[len(before) :], add_special_tokens=False)["input_ids"]
    return ids


CHUNK = 2**23
"""Logits converted to float32 at a time (32 MiB)."""


def sample_tokens(
    logits_BV: Tensor, temperature: float, top_p: float, generator: torch.Generator
) -> tuple[Tensor, Tensor | None]:
    """Sample one token for each row, by inverting the cumulative distribution.

    The nucleus of ``top_p`` is the smallest set of most probable tokens whose mass reaches it (arXiv 1904.09751). One
    random number a row is drawn from ``generator``.

    Returns:
        Token ids [B], and the nucleus of each row [B, K] as packed bits, None where ``top_p`` is 1.
    """
    probs_BV = (logits_BV.float() / temperature).softmax(-1)
    if top_p >= 1.0:
        cdf_BV = probs_BV.cumsum(-1).double()
        return _invert(cdf_BV, cdf_BV[:, -1:], generator).clamp(max=cdf_BV.shape[-1] - 1).squeeze(-1), None
    probs_BV, order_BV = probs_BV.sort(-1, descending=True)
    cdf_BV = probs_BV.cumsum(-1).double()
    last_B1 = (cdf_BV < top_p).sum(-1, keepdim=True).clamp(max=cdf_BV.shape[-1] - 1)
    place_B1 = torch.minimum(_invert(cdf_BV, cdf_BV.gather(-1, last_B1), generator), last_B1)
    kept_BV = torch.arange(cdf_BV.shape[-1], device=cdf_BV.device) <= last_B1
    nucleus_BV = torch.zeros_like(kept_BV).scatter(-1, order_BV, kept_BV)
    return order_BV.gather(-1, place_B1).squeeze(-1), pack_mask(nucleus_BV)


def _invert(cdf_BV: Tensor, mass_B1: Tensor, generator: torch.Generator) -> Tensor:
    uniform_B1 = torch.rand(mass_B1.shape, generator=generator, dtype=torch.float64, device=mass_B1.device)
    # right=True: a token of probability 0 has no width in the cumulative distribution, and is never sampled
    return torch.searchsorted(cdf_BV, uniform_B1 * mass_B1, right=True)


def pack_mask(mask_BV: Tensor) -> Tensor:
    """Return a boolean mask [B, V] as bits [B, K] (uint8), the lowest bit first."""
    padded = torch.nn.functional.pad(mask_BV.to(torch.uint8), (0, -mask_BV.shape[-1] % 8))
    bits_BK8 = padded.view(len(padded), -1, 8) << _bits(mask_BV.device)
    return bits_BK8.sum(-1, dtype=torch.uint8)


def unpack_mask(packed_NK: Tensor, vocabulary: int) -> Tensor:
    """Return the boolean mask [N, V] that `pack_mask` packed."""
    return ((packed_NK.unsqueeze(-1) >> _bits(packed_NK.device)) & 1).flatten(-2)[:, :vocabulary].bool()


def _bits(device: torch.device) -> Tensor:
    return torch.arange(8, dtype=torch.uint8, device=device)


def token_logprobs(
    logits: Tensor, ids: Tensor, temperature: float, nucleus: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the log-probability of each token and the entropy of the distribution it was sampled from.

    The distribution is softmax(logits / temperature), restricted to the nucleus of `sample_tokens` and renormalised
    where there is one (see the module). A token outside its nucleus gets -inf.

    Args:
        logits: [..., V].
        ids: The tokens [...].
        temperature: What they were sampled at.
        nucleus: [..., K], or None.

    Returns:
        Log-probabilities and entropies, both [...] in nats; the entropies carry no gradient.
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
        for at in _chunks(logits_NV):
            scaled = _scaled(logits_NV[at].to(precise), temperature, nucleus_NK, at)
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
        for at in _chunks(logits_NV):
            scaled = _scaled(logits_NV[at].to(log_z_N.dtype), ctx.temperature, nucleus_NK, at)
            grad = (scaled - log_z_N[at].unsqueeze(-1)).exp_().mul_(-scale_N[at].unsqueeze(-1))
            grad.scatter_add_(-1, ids_N[at].unsqueeze(-1), scale_N[at].unsqueeze(-1))
            grad_NV[at] = grad
        return grad_NV, None, None, None


def _scaled(logits_nV: Tensor, temperature: float, nucleus_NK: Tensor | None, at: slice) -> Tensor:
    """Logits by temperature, -inf outside the nucleus."""
    scaled = logits_nV / temperature
    if nucleus_NK is None:
        return scaled
    return scaled.masked_fill_(~unpack_mask(nucleus_NK[at], scaled.shape[-1]), -torch.inf)


def _chunks(logits_NV: Tensor) -> list[slice]:
    positions, vocabulary = logits_NV.shape
    size = max(1, CHUNK // vocabulary)
    return [slice(start, start + size) for start in range(0, positions, size)]
