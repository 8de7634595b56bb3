"""Sampling of completions in an environment: turns of the policy and answers of its tools, for a batch at once.

Keys and values are kept from turn to turn, so that each token is processed once; episodes that have ended leave the
batch. One whose tools take longer than a moment sits out, and joins the batch again for its next turn.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rubricsvc.core.prompt import Prompt
from trainer.config import SamplingConfig
from trainer.environments.environment import Environment, Tool
from trainer.environments.episodes import Answers, EpisodeLimits, RunningEpisode, begin
from trainer.policies.decoding import Decoding
from trainer.policies.rollouts import Rollouts
from trainer.policies.transcripts import Transcript, rollouts_of

if TYPE_CHECKING:
    from trainer.policies.policy import Policy


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
