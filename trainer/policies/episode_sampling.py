"""Sampling of completions in an environment: turns of the policy and answers of its tools, for a batch at once.

Keys and values are kept from turn to turn, so that each token is processed once; episodes that have ended leave the
batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rubricsvc.core.prompt import Message, Prompt
from trainer.config import SamplingConfig
from trainer.environments.environment import Environment
from trainer.environments.episodes import EpisodeLimits, RunningEpisode, begin, turn_all
from trainer.policies.chat import answer_ids
from trainer.policies.rollouts import EpisodeRecord, Rollouts

if TYPE_CHECKING:
    from trainer.policies.policy import Policy


@dataclass(frozen=True)
class Acting:
    """An environment to act in, and the limits of an episode.

    ``max_tokens`` are those of a completion, what the environment wrote included; what would exceed them ends it.
    """

    environment: Environment
    limits: EpisodeLimits
    max_tokens: int

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
    transcripts = [_Transcript(episode) for episode in episodes]
    decoding, live = policy.decoding(*prompts), transcripts
    while live:
        sampled = decoding.sample(sampling, generator)
        rows, unfinished = sampled.rows, sampled.unfinished_B.tolist()
        answers = turn_all([one.episode for one in live], policy.texts(rows))
        continued: list[list[int]] = []
        for place, one in enumerate(live):
            nuclei = None if sampled.nucleus_BNK is None else sampled.nucleus_BNK[place, : len(rows[place])]
            one.add(rows[place], nuclei, given=False)
            one.truncated = unfinished[place]
            continued.append(_answered(policy, one, answers[place], sampling.max_new_tokens, nuclei))
        kept = [place for place, ids in enumerate(continued) if ids]
        live = [live[place] for place in kept]
        if live:
            decoding.keep(kept)
            decoding.append([continued[place] for place in kept])
    return _rollouts(*prompts, transcripts)


def _answered(
    policy: Policy, one: _Transcript, messages: Sequence[Message], max_new_tokens: int, nuclei: Tensor | None
) -> list[int]:
    """Add what the tools answer, and return its tokens; none where the episode ends."""
    if one.truncated or one.episode.done or policy.acting is None:
        return []
    ids = answer_ids(policy.tokenizer, messages)
    if len(one.ids) + len(ids) + max_new_tokens > policy.acting.max_tokens:
        one.truncated = True
        return []
    one.add(ids, None if nuclei is None else torch.full((len(ids), nuclei.shape[-1]), 255).to(nuclei), given=True)
    return ids


class _Transcript:
    """An episode, its tokens, which of them the environment gave, and their nuclei [T, K]."""

    def __init__(self, episode: RunningEpisode) -> None:
        self.episode, self.truncated = episode, False
        self.ids: list[int] = []
        self.given: list[bool] = []
        self.nuclei: list[Tensor] = []

    def add(self, ids: Sequence[int], nuclei: Tensor | None, *, given: bool) -> None:
        self.ids += ids
        self.given += [given] * len(ids)
        self.nuclei += [] if nuclei is None else [nuclei]

    def record(self) -> EpisodeRecord:
        """Return the trajectory with its counts."""
        counts = {"turns": self.episode.turns, **self.episode.counts}
        return EpisodeRecord(tuple(self.episode.messages), counts, self.episode.tool_time)


def _rollouts(ids_QP: Tensor, mask_QP: Tensor, prompt_of_B: Tensor, transcripts: Sequence[_Transcript]) -> Rollouts:
    device = ids_QP.device
    nuclei = [torch.cat(one.nuclei) for one in transcripts if one.nuclei]
    return Rollouts(
        prompt_ids_QP=ids_QP,
        prompt_mask_QP=mask_QP,
        prompt_of_B=prompt_of_B,
        ids_BT=_padded([torch.tensor(one.ids, device=device) for one in transcripts]),
        mask_BT=_padded([torch.ones(len(one.ids), dtype=torch.bool, device=device) for one in transcripts]),
        truncated_B=torch.tensor([one.truncated for one in transcripts], device=device),
        texts=tuple(one.episode.report for one in transcripts),
        nucleus_BTK=_padded(nuclei, 255) if nuclei else None,
        from_environment_BT=_padded([torch.tensor(one.given, device=device) for one in transcripts]),
        episodes=tuple(one.record() for one in transcripts),
    )


def _padded(rows: Sequence[Tensor], fill: float = 0) -> Tensor:
    return pad_sequence(list(rows), batch_first=True, padding_value=fill)
