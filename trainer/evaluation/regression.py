"""The regression suite of evaluations: small requests that no run trains on, with budgets of tokens and checks.

Each is decoded greedily, so that two policies differ by their weights alone.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import Field, TypeAdapter

from rubricsvc.core.base import Name, Value
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from trainer.config import SamplingConfig
from trainer.history import Metrics
from trainer.policies.policy import Policy
from workers import checks

OVER_BUDGET = "over its budget"
"""What a completion with too many tokens fails, beside its checks."""


class SmallTask(Value):
    """A request with its budget of tokens, and what its completion must meet."""

    name: Name
    prompt: str
    max_tokens: int = Field(ge=1)
    checks: tuple[Check, ...] = Field(min_length=1)

    @property
    def rubric(self) -> Rubric:
        """The checks as a rubric; a check's key is its name, with a number where there are several."""
        criteria = (
            Criterion(key=f"{check.name}-{number}", text=check.name, check=check)
            for number, check in enumerate(self.checks, 1)
        )
        return Rubric(criteria=tuple(criteria))


@cache
def suite() -> tuple[SmallTask, ...]:
    """Return the requests of ``regression.yaml``."""
    content = files(__package__).joinpath("regression.yaml").read_text(encoding="utf-8")
    return TypeAdapter(tuple[SmallTask, ...]).validate_python(yaml.safe_load(content))


def most_tokens() -> int:
    """Return the tokens after which completions are cut off: one more than the largest budget."""
    return 1 + max(task.max_tokens for task in suite())


def regression(policy: Policy, greedy: SamplingConfig, step: int) -> Metrics:
    """Return what a policy makes of each request: tokens, what it fails (empty: it passes), and its text.

    Args:
        policy: The policy.
        greedy: Greedy sampling, but for its ``max_new_tokens``: budgets are those of the requests.
        step: Training steps of the policy.
    """
    tasks, found = suite(), dict[str, Any]()
    greedy = greedy.model_copy(update={"max_new_tokens": most_tokens()})
    prompts = [Prompt.of(task.prompt) for task in tasks]
    rollouts = policy.sample(prompts, 1, greedy, seed=0)
    sampled = zip(
        tasks, prompts, rollouts.completions(policy.name, step, greedy), rollouts.lengths.tolist(), strict=True
    )
    for task, prompt, completion, tokens in sampled:
        verdicts = checks.run(task.rubric, prompt, completion)
        failed = [verdict.criterion for verdict in verdicts if verdict.value is not None and verdict.value < 1]
        failed += [OVER_BUDGET] if tokens > task.max_tokens else []
        found[task.name] = {"tokens": int(tokens), "failed": failed, "text": completion.text}
    return found
