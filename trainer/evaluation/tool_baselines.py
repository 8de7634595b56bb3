"""Baselines of a run in an environment: does the policy need its tools, and does it beat a script?

- ``without_tools``: the trained policy, whose prompt has no tools.
- ``empty_results``: the trained policy with tools whose results are empty, but for those that end the episode.
- ``script``: what a script without a model makes of the search's first document (`trainer.environments.scripted`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.errors import InvalidError
from rubricsvc.schemas.runs import OF_TOOLS
from trainer.config import SamplingConfig
from trainer.data.demonstrations import rollouts_of
from trainer.environments.scripted import NAME, demonstrate
from trainer.environments.tools import EmptyResults, Research
from trainer.policies.episode_sampling import Acting
from trainer.policies.policy import Policy
from trainer.policies.rollouts import Rollouts


def without_tools(policy: Policy) -> Policy:
    """Return a policy without its tools."""
    changed = copy(policy)
    changed.acting = None
    return changed


def with_empty_results(policy: Policy) -> Policy:
    """Return a policy whose tools find nothing."""
    changed, acting = copy(policy), _acting(policy)
    changed.acting = Acting(EmptyResults(acting.environment), acting.limits, acting.max_tokens)
    return changed


class Script(Policy):
    """A script of `research` in the place of a policy, whose tokenizer it uses."""

    def __init__(self, policy: Policy) -> None:
        """Raise an InvalidError unless the policy acts in `research`."""
        super().__init__(policy.model, policy.tokenizer, NAME, _acting(policy))
        environment = _acting(policy).own_environment
        if not isinstance(environment, Research):
            raise InvalidError("the script is one of `research`", hint="remove it", path="eval.baselines")
        self._environment = environment

    def sample(self, prompts: Sequence[Prompt], group_size: int, sampling: SamplingConfig, seed: int) -> Rollouts:
        """Return its completion of each prompt, ``group_size`` times; it has no chance."""
        completions = [self._completion(prompt) for prompt in prompts for _ in range(group_size)]
        return rollouts_of(prompts, completions, self)

    def _completion(self, prompt: Prompt) -> Completion:
        found = demonstrate(self._environment, prompt, _acting(self).limits, informed=False)
        completion = found or Completion(text="", policy=NAME)
        return completion.model_copy(update={"sampling": {**completion.sampling, "truncated": False}})


TOOL_BASELINES: Mapping[str, Callable[[Policy], Policy]] = dict(
    zip(OF_TOOLS, (without_tools, with_empty_results, Script), strict=True)
)
"""What makes a baseline of the trained policy, by name."""


def _acting(policy: Policy) -> Acting:
    if policy.acting is None:
        raise InvalidError("the run has no environment", hint="remove the baseline", path="eval.baselines")
    return policy.acting
