"""What must hold before the first step of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rubricsvc.errors import InvalidError
from trainer import checkpoint
from trainer.config import TrainConfig
from trainer.data.tasks import Task, check_apart
from trainer.policies.policy import Policy

if TYPE_CHECKING:
    from trainer.evaluation.evaluation import Evaluation
    from trainer.evolution import OnlineEvolution


def check_start(
    policy: Policy,
    tasks: Sequence[Task],
    config: TrainConfig,
    *,
    resume: bool,
    evolution: OnlineEvolution | None,
    evaluation: Evaluation | None,
) -> None:
    """Check the arguments of `trainer.loop.train` against its configuration.

    Raises:
        InvalidError: There are no tasks, a prompt is too long, or an argument does not agree with the configuration.
        NotFoundError, ConflictError: There is no run to resume, or one not to resume.
    """
    if not tasks:
        raise InvalidError("there are no tasks to train on", hint="give prompts with rubrics")
    pairs = (("evolve", config.evolve, "evolution", evolution), ("eval", config.eval, "evaluation", evaluation))
    for name, settings, argument, given in pairs:
        if (settings is None) != (given is None):
            hint = "give both, or neither"
            raise InvalidError(f"`config.{name}` and `{argument}` do not agree", hint=hint, path=name)
    if config.environment is not None and policy.acting is None:
        hint = "load it with one: Policy.load(…, acting=make_acting(…))"
        raise InvalidError("the policy has no environment", hint=hint, path="environment")
    if evolution is not None:
        evolution.check(tasks)
    if evaluation is not None:
        check_apart(tasks, evaluation.evaluator.tasks)
        evaluation.evaluator.check(policy)
    if config.out:
        checkpoint.check_folder(config.out, resume=resume)
    for task in tasks:
        policy.token_ids(task.prompt, config.sampling.max_new_tokens)
