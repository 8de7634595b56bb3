"""A bonus for the use of tools, while they are learned: it fades, and the recorded rewards do not have it.

It is added to the advantages and not to the rewards. Where the rewards of a group differ, their advantages have a
deviation of 1 (less under the floor); the bonus is 0.5 at most, so that the rubric stays the larger signal. Added to
the rewards it would be divided by their deviation, and where they hardly differ it would be all that is learned.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rubricsvc.core.trajectory import is_error, json_of, tool_results
from trainer.environments.config import EnvironmentConfig
from trainer.policies.rollouts import EpisodeRecord, Rollouts

TOOLS = 2
"""Different tools for the whole bonus, such as a search and an opened document. More calls earn no more."""


def tool_bonus(rollouts: Rollouts, config: EnvironmentConfig | None, step: int) -> Tensor | None:
    """Return the bonus of each completion [B] in a step (from 0); None without one, or once it has faded.

    It is ``tool_bonus`` · (1 - step/steps) · min(1, tools/2): of tools that answered a call without an error.
    """
    if config is None or not rollouts.episodes or step >= config.tool_bonus_steps or not config.tool_bonus:
        return None
    size = config.tool_bonus * (1 - step / config.tool_bonus_steps)
    return torch.tensor([size * min(1.0, _tools(one) / TOOLS) for one in rollouts.episodes], dtype=torch.float64)


def centred(bonus_GM: Tensor, rewards_GM: Tensor) -> Tensor:
    """Return the bonus less its mean over the scored completions of the group [G, M]; 0 for those without a reward."""
    scored_GM = torch.where(rewards_GM.isnan(), torch.nan, bonus_GM)
    return (scored_GM - scored_GM.nanmean(-1, keepdim=True)).nan_to_num(0.0)


def _tools(episode: EpisodeRecord) -> int:
    """Return how many different tools answered a call without an error."""
    results = tool_results(episode.messages)
    return len({call.name for call, result in results if call is not None and not is_error(json_of(result.content))})
