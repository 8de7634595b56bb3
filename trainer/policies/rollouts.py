"""Rollouts: completions of a policy with their tokens, also the transcripts of episodes with tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from pydantic import JsonValue
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rubricsvc.core.prompt import Completion, Message, Prompt
from rubricsvc.errors import InvalidError
from trainer.config import SamplingConfig
from trainer.environments.environment import Tool
from trainer.environments.episodes import RunningEpisode
from trainer.environments.tool_calls import call_line, notes_of, took_note, with_tools

if TYPE_CHECKING:
    from trainer.policies.policy import Policy


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """A trajectory in an environment: its messages, counts of what happened in it, and the seconds of its tools.

    ``leaks`` are the results of tools that held the answer (`trainer.environments.leaks`).
    """

    messages: tuple[Message, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    tool_time: float = 0.0
    leaks: tuple[Mapping[str, JsonValue], ...] = ()

    @property
    def sampling(self) -> dict[str, JsonValue]:
        """What a completion has of it beside the messages."""
        tools: dict[str, JsonValue] = {"tools": dict(self.counts)} if self.counts else {}
        return tools | ({"leaks": [dict(leak) for leak in self.leaks]} if self.leaks else {})


NO_EPISODE = EpisodeRecord()


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
    episodes: tuple[EpisodeRecord, ...] | None = None
    demonstrations: tuple[Completion, ...] | None = None

    @property
    def written_BT(self) -> Tensor:  # noqa: N802 - shape in the name
        """Tokens that the policy wrote [B, T]: those that are learned."""
        return self.mask_BT if self.from_environment_BT is None else self.mask_BT & ~self.from_environment_BT

    @property
    def lengths(self) -> Tensor:
        """Tokens that the policy wrote in each completion [B]."""
        return self.written_BT.sum(-1)

    def completions(self, policy: str, step: int, sampling: SamplingConfig) -> list[Completion]:
        """Return the completions as values of the policy after ``step`` steps; demonstrations as they are."""
        if self.demonstrations is not None:
            return list(self.demonstrations)
        parameters = sampling.model_dump(include={"temperature", "top_p", "max_new_tokens"})
        episodes = self.episodes or repeat(NO_EPISODE, len(self.texts))
        return [
            Completion(
                text=text,
                messages=episode.messages,
                policy=policy,
                step=step,
                sampling={**parameters, "truncated": truncated, **episode.sampling},
            )
            for text, truncated, episode in zip(self.texts, self.truncated_B.tolist(), episodes, strict=True)
        ]

    def select(self, rows: Tensor) -> Rollouts:
        """Return the chosen completions with their prompts, and no more padding than these need."""
        prompts, prompt_of_B = torch.unique(self.prompt_of_B[rows], return_inverse=True)
        longest = int(self.prompt_mask_QP[prompts].sum(-1).max())
        width = max(1, int(self.mask_BT[rows].sum(-1).max()))
        return replace(
            self,
            prompt_ids_QP=self.prompt_ids_QP[prompts, -longest:],
            prompt_mask_QP=self.prompt_mask_QP[prompts, -longest:],
            prompt_of_B=prompt_of_B,
            ids_BT=self.ids_BT[rows, :width],
            mask_BT=self.mask_BT[rows, :width],
            truncated_B=self.truncated_B[rows],
            texts=tuple(self.texts[i] for i in rows.tolist()),
            nucleus_BTK=None if self.nucleus_BTK is None else self.nucleus_BTK[rows, :width],
            sampled_logp_BT=None if self.sampled_logp_BT is None else self.sampled_logp_BT[rows, :width],
            from_environment_BT=None if self.from_environment_BT is None else self.from_environment_BT[rows, :width],
            context_BT=None if self.context_BT is None else self.context_BT[rows, :width],
            episodes=None if self.episodes is None else tuple(self.episodes[i] for i in rows.tolist()),
            demonstrations=None
            if self.demonstrations is None
            else tuple(self.demonstrations[i] for i in rows.tolist()),
        )


def join(parts: Sequence[Rollouts]) -> Rollouts:
    """Return the rollouts of several batches as one; all of them have nuclei, or none."""
    first = parts[0]
    offsets = list(accumulate((len(part.prompt_ids_QP) for part in parts), initial=0))
    given = [part.from_environment_BT for part in parts if part.from_environment_BT is not None]
    contexts = [part.context_BT for part in parts if part.context_BT is not None]
    nuclei = [part.nucleus_BTK for part in parts if part.nucleus_BTK is not None]
    sampled = [part.sampled_logp_BT for part in parts if part.sampled_logp_BT is not None]
    return Rollouts(
        prompt_ids_QP=_stacked([part.prompt_ids_QP for part in parts], left=True),
        prompt_mask_QP=_stacked([part.prompt_mask_QP for part in parts], left=True),
        prompt_of_B=torch.cat([part.prompt_of_B + at for part, at in zip(parts, offsets, strict=False)]),
        ids_BT=_stacked([part.ids_BT for part in parts]),
        mask_BT=_stacked([part.mask_BT for part in parts]),
        truncated_B=torch.cat([part.truncated_B for part in parts]),
        texts=tuple(text for part in parts for text in part.texts),
        # at padding every token is in the nucleus: the log-probabilities there are not used, but must be numbers
        nucleus_BTK=_stacked(nuclei, fill=255) if first.nucleus_BTK is not None else None,
        sampled_logp_BT=_stacked(sampled) if sampled else None,
        from_environment_BT=_stacked(given) if given else None,
        context_BT=_stacked(contexts) if contexts else None,
        episodes=tuple(one for part in parts for one in part.episodes or ()) if first.episodes is not None else None,
    )


def _stacked(parts: Sequence[Tensor], *, left: bool = False, fill: int = 0) -> Tensor:
    """Return tensors [N, W, …] of several widths as one [ΣN, max W, …]."""
    width = max(part.shape[1] for part in parts)
    padded = []
    for part in parts:
        shape = (len(part), width - part.shape[1], *part.shape[2:])
        padding = torch.full(shape, fill, dtype=part.dtype, device=part.device)
        padded.append(torch.cat([padding, part] if left else [part, padding], dim=1))
    return torch.cat(padded)


class Transcript:
    """The tokens of a completion, in an environment with its episode; which of them the environment gave.

    ``contexts`` has the place where each token's context begins: a note begins another one. ``nuclei`` [T, K] and
    ``logprobs`` are those that the tokens were sampled with, where they are known.
    """

    def __init__(self, episode: RunningEpisode | None = None) -> None:
        self.episode, self.truncated = episode, False
        self.ids: list[int] = []
        self.given: list[bool] = []
        self.contexts: list[int] = []
        self.start = 0  # of the current context
        self.fresh = False  # whether it began with the last answer
        self.nuclei: list[Tensor] = []
        self.logprobs: list[float] = []

    @property
    def visible_ids(self) -> list[int]:
        """The tokens of the current context, which follow the prompt."""
        return self.ids[self.start :]

    def add(self, ids: Sequence[int], nuclei: Tensor | None = None, logprobs: Sequence[float] = ()) -> None:
        """Add tokens that the policy sampled."""
        self._extend(ids, nuclei, logprobs, given=False)

    def answered(self, policy: Policy, messages: Sequence[Message], max_new_tokens: int) -> list[int]:
        """Add what the tools answer, and return its tokens; none where the episode ends."""
        if self.truncated or self.episode is None or self.episode.done or policy.acting is None:
            return []
        noted = policy.acting.limits.notes and took_note(messages)
        ids = fresh_ids(policy.tokenizer, self.episode.messages) if noted else answer_ids(policy.tokenizer, messages)
        if (0 if noted else len(self.visible_ids)) + len(ids) + max_new_tokens > policy.acting.max_tokens:
            self.truncated = True
            return []
        self.fresh = noted
        self.start = len(self.ids) if noted else self.start
        nuclei = torch.full_like(self.nuclei[-1][:1], 255).expand(len(ids), -1) if self.nuclei else None
        self._extend(ids, nuclei, [0.0] * len(ids) if self.logprobs else (), given=True)
        return ids

    def _extend(self, ids: Sequence[int], nuclei: Tensor | None, logprobs: Sequence[float], *, given: bool) -> None:
        self.ids += ids
        self.given += [given] * len(ids)
        self.contexts += [self.start] * len(ids)
        self.nuclei += [] if nuclei is None else [nuclei]
        self.logprobs += logprobs


def rollouts_of(policy: Policy, prompts: tuple[Tensor, Tensor, Tensor], transcripts: Sequence[Transcript]) -> Rollouts:
    """Return completions that have ended, with their prompts [Q, P], these' mask, and the prompt of each [B]."""
    device, ids_QP = policy.device, prompts[0]
    nuclei = [torch.cat(one.nuclei) for one in transcripts if one.nuclei]
    logprobs = [torch.tensor(one.logprobs, device=device) for one in transcripts if one.logprobs]
    episodes = [one.episode for one in transcripts if one.episode is not None]
    return Rollouts(
        prompt_ids_QP=ids_QP,
        prompt_mask_QP=prompts[1],
        prompt_of_B=prompts[2],
        ids_BT=_padded([torch.tensor(one.ids, device=device) for one in transcripts]),
        mask_BT=_padded([torch.ones(len(one.ids), dtype=torch.bool, device=device) for one in transcripts]),
        truncated_B=torch.tensor([one.truncated for one in transcripts], device=device),
        texts=tuple(one.report for one in episodes) or policy.texts([one.ids for one in transcripts]),
        nucleus_BTK=_padded(nuclei, 255) if nuclei else None,
        sampled_logp_BT=_padded(logprobs) if logprobs else None,
        from_environment_BT=_padded([torch.tensor(one.given, device=device) for one in transcripts])
        if episodes
        else None,
        context_BT=_padded([torch.tensor(one.contexts, device=device) for one in transcripts])
        if policy.acting is not None and policy.acting.limits.notes
        else None,
        episodes=tuple(map(_record, episodes)) or None,
    )


def _record(episode: RunningEpisode) -> EpisodeRecord:
    """Return a trajectory with its counts and leaks."""
    counts = {"turns": episode.turns, **episode.counts}
    return EpisodeRecord(tuple(episode.messages), counts, episode.tool_time, tuple(episode.leaks))


def _padded(rows: Sequence[Tensor], fill: float = 0) -> Tensor:
    return pad_sequence(list(rows), batch_first=True, padding_value=fill)


def prompt_ids(tokenizer: Any, prompt: Prompt, tools: Sequence[Tool] = ()) -> list[int]:
    """Return the tokens of a prompt with its documents. Without a chat template the plain text is the prompt.

    A chat template without tools has them in the system message.
    """
    described = "tools" in (tokenizer.chat_template or "")
    shown = (prompt if described or not tools else with_tools(prompt, tools)).with_documents
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
