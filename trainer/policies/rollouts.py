"""Rollouts: completions of a policy with their tokens, also the transcripts of episodes with tools."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, groupby, pairwise, repeat
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from pydantic import JsonValue
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rubricsvc.core.prompt import Completion, Message
from rubricsvc.errors import InvalidError
from trainer.config import SamplingConfig
from trainer.environments.episodes import Answers, RunningEpisode
from trainer.environments.tool_calls import call_line, notes_of, took_note

if TYPE_CHECKING:
    from trainer.policies.policy import Policy

T = TypeVar("T")
NO_OPTIONS: Mapping[str, Any] = {}
OF_PROMPTS = ("prompt_ids_QP", "prompt_mask_QP")
OF_TOKENS = ("ids_BT", "mask_BT", "nucleus_BTK", "sampled_logp_BT", "from_environment_BT", "context_BT")
"""Fields of `Rollouts` with a value for each token; some may be None."""

PASS_TOKENS = 256
"""Tokens that take about as long as what a pass costs by itself: reading weights, adding gradients."""


def micro_batches(
    items: Sequence[T], max_tokens: int, padded: Callable[[Sequence[T]], int], width: float = math.inf
) -> list[Sequence[T]]:
    """Return the items, in order, in the batches that take the least time together.

    ``padded`` returns the tokens of a batch with padding: at most ``max_tokens``, or a single item. Where each token
    attends to all of its pass, attention takes as long as the rest in a pass of ``width`` tokens.
    """
    best: list[tuple[float, int]] = [(0, 0)]  # of the first items: tokens, and where their last batch begins
    for end in range(1, len(items) + 1):
        ways = list[tuple[float, int]]()
        for begin in range(end - 1, -1, -1):
            if (tokens := padded(items[begin:end])) > max_tokens and ways:
                break
            ways.append((best[begin][0] + tokens + tokens**2 / width + PASS_TOKENS, begin))
        best.append(min(ways))
    batches, end = list[Sequence[T]](), len(items)
    while end:
        batches.append(items[best[end][1] : end])
        end = best[end][1]
    return batches[::-1]


@dataclass(frozen=True)
class Rollouts:
    """Token ids, masks (True at a token) and texts of a batch of completions.

    ``prompt_of_B`` is the prompt's row of each completion. ``truncated_B`` marks completions cut off at
    ``max_new_tokens``, or at the tokens of an episode; the others end with the model's own end token, which belongs to
    the completion like any other.
    ``texts`` have U+FFFD where tokens decode to characters that a service cannot store.
    Of episodes in an environment ``texts`` are the final reports; ``from_environment_BT`` marks the tokens that the
    environment wrote, which are not learned, and ``episodes`` has the trajectories. ``demonstrations`` are completions
    that the policy did not sample.
    ``nucleus_BTK`` holds the tokens that could be sampled at each position (`sample_tokens`); None means all.
    ``context_BT`` are the contexts of the tokens where there may be several: a token sees the prompt, and the tokens
    before it in its context (`trainer.environments.tool_calls`).
    ``sampled_logp_BT`` holds the log-probabilities that a server sampled with; None where the policy sampled itself.
    """

    prompt_ids_QP: Tensor
    prompt_mask_QP: Tensor
    prompt_of_B: Tensor
    ids_BT: Tensor
    mask_BT: Tensor
    truncated_B: Tensor
    texts: tuple[str, ...]
    nucleus_BTK: Tensor | None = None
    sampled_logp_BT: Tensor | None = None
    from_environment_BT: Tensor | None = None
    context_BT: Tensor | None = None
    episodes: tuple[RunningEpisode, ...] | None = None
    demonstrations: tuple[Completion, ...] | None = None

    @property
    def written_BT(self) -> Tensor:  # noqa: N802 - shape in the name
        """Tokens that the policy wrote [B, T]: those that are learned."""
        return self.mask_BT if self.from_environment_BT is None else self.mask_BT & ~self.from_environment_BT

    @property
    def lengths(self) -> Tensor:
        """Tokens that the policy wrote in each completion [B]."""
        return self.written_BT.sum(-1)

    def beginnings(self, rows: Sequence[int]) -> tuple[list[int], list[Tensor], list[int]]:
        """Return rows in an order in which those that begin alike are neighbours, and the tokens [L, 2] of each.

        A token is its id and its context, -1 in the prompt. The third list has for each row with how many of the same
        tokens it begins as the one before.
        """
        context_BT = torch.zeros_like(self.ids_BT) if self.context_BT is None else self.context_BT
        asked_QPN = torch.stack([self.prompt_ids_QP, torch.full_like(self.prompt_ids_QP, -1)], dim=-1)
        asked = [one[mask] for one, mask in zip(asked_QPN, self.prompt_mask_QP, strict=True)]
        both_BTN = torch.stack([self.ids_BT, context_BT], dim=-1)
        tokens = {row: torch.cat([asked[int(self.prompt_of_B[row])], both_BTN[row][self.mask_BT[row]]]) for row in rows}
        order, shared = sorted(tokens, key=lambda row: tokens[row].tolist()), [0]
        for one, other in pairwise(tokens[row] for row in order):
            length = min(len(one), len(other))
            shared.append(int((one[:length] == other[:length]).all(-1).cumprod(0).sum()))
        return order, [tokens[row] for row in order], shared

    def micro_batches(self, rows_N: Tensor, max_tokens: int, width: float) -> list[tuple[Tensor, Rollouts]]:
        """Return the chosen rows and their completions, in batches of at most so many tokens or a single completion.

        Those that begin alike are together: what they share is computed once (`token_tree`).
        """
        order, tokens, shared = self.beginnings(rows_N.tolist())
        own = [len(one) - begun for one, begun in zip(tokens, shared, strict=False)]
        batches = micro_batches(
            range(len(order)), max_tokens, lambda some: shared[some[0]] + sum(own[some[0] : some[-1] + 1]), width
        )
        chosen = [torch.tensor([order[place] for place in some], device=rows_N.device) for some in batches]
        return [(some, self.select(some)) for some in chosen]

    def completions(self, policy: str, step: int, sampling: SamplingConfig) -> list[Completion]:
        """Return the completions as values of the policy after ``step`` steps; demonstrations as they are."""
        if self.demonstrations is not None:
            return list(self.demonstrations)
        parameters = sampling.model_dump(include={"temperature", "top_p", "max_new_tokens"})
        episodes = self.episodes or repeat(None, len(self.texts))
        completions = []
        for text, truncated, one in zip(self.texts, self.truncated_B.tolist(), episodes, strict=True):
            how: dict[str, JsonValue] = {**parameters, "truncated": truncated}
            if one is not None:
                how |= {"tools": {"turns": one.turns, **one.counts}}
                how |= {"leaks": [dict(leak) for leak in one.leaks]} if one.leaks else {}
            messages = tuple(one.messages) if one is not None else ()
            completions.append(Completion(text=text, messages=messages, policy=policy, step=step, sampling=how))
        return completions

    def select(self, rows: Tensor) -> Rollouts:
        """Return the chosen completions with their prompts, and no more padding than these need."""
        prompts, prompt_of_B = torch.unique(self.prompt_of_B[rows], return_inverse=True)
        longest = int(self.prompt_mask_QP[prompts].sum(-1).max())
        width = max(1, int(self.mask_BT[rows].sum(-1).max()))
        chosen: dict[str, Any] = {
            name: values[rows, :width] for name in OF_TOKENS if (values := getattr(self, name)) is not None
        }
        for name in ("texts", "episodes", "demonstrations"):
            if (values := getattr(self, name)) is not None:
                chosen[name] = tuple(values[row] for row in rows.tolist())
        return replace(
            self,
            prompt_ids_QP=self.prompt_ids_QP[prompts, -longest:],
            prompt_mask_QP=self.prompt_mask_QP[prompts, -longest:],
            prompt_of_B=prompt_of_B,
            truncated_B=self.truncated_B[rows],
            **chosen,
        )


@dataclass(frozen=True)
class TokenTree:
    """Completions after their prompts, as R sequences of N tokens: what is ``seen`` from each, and their positions.

    ``place_BT`` is the place [R · N] of each completion token, and ``before_BT`` that of the token before it.
    """

    ids_RN: Tensor
    position_RN: Tensor
    seen: Tensor
    place_BT: Tensor
    before_BT: Tensor


def token_tree(rollouts: Rollouts) -> TokenTree:
    """Return one sequence in which what completions begin with is there once, for all that begin so.

    A token sees those before it in its completion ("tree attention", SpecInfer, arXiv 2305.09781), and in its context:
    the prompt, and what follows the last note.
    """
    order, tokens, shared = rollouts.beginnings(range(len(rollouts.ids_BT)))
    places, count = [torch.empty(0, dtype=torch.long, device=rollouts.ids_BT.device)], 0
    ids, seen = list[Tensor](), list[tuple[Tensor, Tensor, Tensor]]()
    place_BT, before_BT = torch.zeros_like(rollouts.ids_BT), torch.zeros_like(rollouts.ids_BT)
    for row, (id_L, context_L), begun in zip(order, (one.unbind(-1) for one in tokens), shared, strict=True):
        fresh = torch.arange(count, count := count + len(id_L) - begun, device=id_L.device)
        places.append(torch.cat([places[-1][:begun], fresh]))
        seen_LL = ((context_L == context_L.unsqueeze(-1)) | (context_L < 0)).tril()
        seen.append((fresh.unsqueeze(-1), places[-1], seen_LL[begun:]))
        ids.append(id_L[begun:])
        asked = int((context_L < 0).sum())
        place_BT[row, rollouts.mask_BT[row]] = places[-1][asked:]
        before_BT[row, rollouts.mask_BT[row]] = places[-1][asked - 1 : -1]
    seen_NN = torch.zeros(count, count, dtype=torch.bool, device=rollouts.ids_BT.device)
    for fresh_N1, places_L, seen_NL in seen:
        seen_NN[fresh_N1, places_L] = seen_NL
    return TokenTree(torch.cat(ids)[None], seen_NN.sum(-1)[None] - 1, seen_NN[None, None], place_BT, before_BT)


def separate_sequences(rollouts: Rollouts) -> TokenTree:
    """Return a sequence for each completion: for a single one, which needs no mask, and layers that do not see all."""
    order, tokens, _ = rollouts.beginnings(range(len(rollouts.ids_BT)))
    ids_BN = pad_sequence([one[:, 0] for one in tokens], batch_first=True)
    seen_BN = pad_sequence([torch.ones_like(one[:, 0]) for one in tokens], batch_first=True)
    place_BT = torch.zeros_like(rollouts.ids_BT)
    for number, (row, one) in enumerate(zip(order, tokens, strict=True)):
        columns = torch.arange(len(one), device=one.device)[one[:, 1] >= 0]
        place_BT[row, rollouts.mask_BT[row]] = number * ids_BN.shape[1] + columns
    return TokenTree(ids_BN, seen_BN.cumsum(-1) - 1, seen_BN, place_BT, place_BT - 1)


def join(parts: Sequence[Rollouts]) -> Rollouts:
    """Return the rollouts of several batches as one; all of them have nuclei, or none."""
    offsets = list(accumulate((len(part.prompt_ids_QP) for part in parts), initial=0))
    stacked: dict[str, Any] = {}
    for name in (*OF_PROMPTS, *OF_TOKENS):  # tensors [N, W, …] of several widths as one [ΣN, max W, …]
        tensors = [values for part in parts if (values := getattr(part, name)) is not None]
        width, padded = max((one.shape[1] for one in tensors), default=0), []
        for one in tensors:
            # at padding every token is in the nucleus: the log-probabilities there are not used, but must be numbers
            shape, fill = (len(one), width - one.shape[1], *one.shape[2:]), 255 if name == "nucleus_BTK" else 0
            padding = torch.full(shape, fill, dtype=one.dtype, device=one.device)
            padded.append(torch.cat([padding, one] if name in OF_PROMPTS else [one, padding], dim=1))
        stacked[name] = torch.cat(padded) if padded else None
    return Rollouts(
        prompt_of_B=torch.cat([part.prompt_of_B + at for part, at in zip(parts, offsets, strict=False)]),
        truncated_B=torch.cat([part.truncated_B for part in parts]),
        texts=tuple(text for part in parts for text in part.texts),
        episodes=tuple(one for part in parts for one in part.episodes or ()) or None,
        **stacked,
    )


@dataclass(eq=False)
class Transcript:
    """The tokens of a completion, in an environment with its episode; which of them the environment gave.

    ``contexts`` has the place where each token's context begins: a note begins another one. ``nuclei`` [T, K] and
    ``logprobs`` are those that the tokens were sampled with, where they are known.
    """

    episode: RunningEpisode | None = None
    truncated: bool = False
    ids: list[int] = field(default_factory=list)
    given: list[bool] = field(default_factory=list)
    contexts: list[int] = field(default_factory=list)
    start: int = 0  # of the current context
    fresh: bool = False  # whether it began with the last answer
    nuclei: list[Tensor] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def add(
        self, ids: Sequence[int], nuclei: Tensor | None = None, logprobs: Sequence[float] = (), *, given: bool = False
    ) -> None:
        """Add tokens that the policy sampled, or that the environment gave."""
        self.ids += ids
        self.given += [given] * len(ids)
        self.contexts += [self.start] * len(ids)
        self.nuclei += [] if nuclei is None else [nuclei]
        self.logprobs += logprobs

    def answered(self, policy: Policy, answers: Future[Answers], max_new_tokens: int) -> list[int]:
        """Add what the tools answer, and return its tokens; none where the episode ends."""
        messages = self.episode.finish(answers) if self.episode is not None else []
        if self.truncated or self.episode is None or self.episode.done or policy.acting is None:
            return []
        noted = policy.acting.limits.notes and took_note(messages)
        if noted:  # a fresh context has the notes so far
            notes, options = notes_of(self.episode.messages), policy.template_options
            ids = transcript(policy.tokenizer, Completion(messages=notes), template_options=options).ids
        else:
            ids = answer_ids(policy.tokenizer, messages, policy.template_options)
        seen = 0 if noted else len(self.ids) - self.start
        if seen + len(ids) + max_new_tokens > policy.acting.max_tokens:
            self.truncated = True
            return []
        self.fresh = noted
        self.start = len(self.ids) if noted else self.start
        nuclei = torch.full_like(self.nuclei[-1][:1], 255).expand(len(ids), -1) if self.nuclei else None
        self.add(ids, nuclei, [0.0] * len(ids) if self.logprobs else (), given=True)
        return ids


def rollouts_of(
    policy: Policy, prompts: tuple[Tensor, Tensor, Tensor], transcripts: Sequence[Transcript], texts: Sequence[str]
) -> Rollouts:
    """Return completions that have ended, with their prompts [Q, P], the mask, and each one's prompt and text [B]."""
    padded, tensor = partial(pad_sequence, batch_first=True), partial(torch.tensor, device=policy.device)
    nuclei = [torch.cat(one.nuclei) for one in transcripts if one.nuclei]
    logprobs = [tensor(one.logprobs) for one in transcripts if one.logprobs]
    episodes = [one.episode for one in transcripts if one.episode is not None]
    given = [one.given for one in transcripts]
    has_contexts = policy.acting is not None and policy.acting.limits.notes
    return Rollouts(
        prompt_ids_QP=prompts[0],
        prompt_mask_QP=prompts[1],
        prompt_of_B=prompts[2],
        ids_BT=padded([tensor(one.ids) for one in transcripts]),
        mask_BT=padded([tensor([True] * len(one.ids), dtype=torch.bool) for one in transcripts]),
        truncated_B=tensor([one.truncated for one in transcripts]),
        texts=tuple(texts),
        nucleus_BTK=padded(nuclei, padding_value=255) if nuclei else None,
        sampled_logp_BT=padded(logprobs) if logprobs else None,
        from_environment_BT=padded(list(map(tensor, given))) if episodes or any(map(any, given)) else None,
        context_BT=padded([tensor(one.contexts) for one in transcripts]) if has_contexts else None,
        episodes=tuple(episodes) or None,
    )


def transcript(
    tokenizer: Any, completion: Completion, *, notes: bool = False, template_options: Mapping[str, Any] = NO_OPTIONS
) -> Transcript:
    """Return the tokens of a completion as a policy would have sampled it.

    An assistant message that follows another one is left out: it repeats the report of a call. With ``notes`` a note
    begins another context.
    """
    messages = completion.messages or (Message(role="assistant", content=completion.text),)
    found, seen = Transcript(), 0
    for from_tools, group in groupby(messages, key=lambda message: message.role == "tool"):
        step = list(group)
        seen += len(step)
        if from_tools and notes and took_note(step):
            noted = Completion(messages=notes_of(messages[:seen]))
            part = transcript(tokenizer, noted, template_options=template_options).ids
            found.start = len(found.ids)
        elif from_tools:
            part = answer_ids(tokenizer, step, template_options)
        else:
            message = step[0]
            calls = "\n".join(call_line(call) for call in message.tool_calls or ())
            text = "\n".join(filter(None, (message.content, calls)))
            part = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        found.add(part, given=from_tools)
    return found


def answer_ids(
    tokenizer: Any, messages: Sequence[Message], template_options: Mapping[str, Any] = NO_OPTIONS
) -> list[int]:
    """Return the tokens between the end token of a message and the policy's next one: the messages of tools."""
    if not tokenizer.chat_template:
        text = "".join(f"\n{message.text}\n" for message in messages)
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])
    begun = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
    answers = [message.model_dump(exclude_none=True) for message in messages]
    options = dict(template_options) | {"tokenize": False}
    before = tokenizer.apply_chat_template(begun, **options)
    after = tokenizer.apply_chat_template([*begun, *answers], **options | {"add_generation_prompt": True})
    if not after.startswith(before):
        raise InvalidError(
            "the policy's chat template changes earlier messages when a tool answers",
            hint="use a model whose template only appends, or change the template",
        )
    after_end = before.rpartition(tokenizer.eos_token)[2] if tokenizer.eos_token in before else ""
    ids: list[int] = tokenizer(after_end + after[len(before) :], add_special_tokens=False)["input_ids"]
    return ids
