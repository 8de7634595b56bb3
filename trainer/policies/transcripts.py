"""Completions while they are sampled: their tokens so far, and who wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rubricsvc.core.prompt import Message
from trainer.environments.episodes import RunningEpisode
from trainer.environments.tool_calls import took_note
from trainer.policies.chat import answer_ids, fresh_ids
from trainer.policies.rollouts import EpisodeRecord, Rollouts

if TYPE_CHECKING:
    from trainer.policies.policy import Policy


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
