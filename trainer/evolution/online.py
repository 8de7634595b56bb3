"""Rubrics that evolve while the policy trains: rounds of proposals, trials and selection, before a step's update.

A round works on the completions that the step has sampled and scored. Its rubric version is used from the next step of
the prompt on, so that all members of a group are scored by the same version. The database records the version of each
step and each round: a step that is repeated after a resume uses the same ones, and asks nothing again.

::

    buffers = CriterionBuffers(db, "first-3f2a9c1d", approve="auto")      # rubricsvc.services.criterion_buffers
    with OnlineEvolution(config.evolve, buffers, rewards) as evolution:
        train(policy, tasks, rewards, config, evolution=evolution)
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from rubricsvc.core.criterion_buffer import EvolutionRound, check_evolvable
from rubricsvc.core.panel import mean_known
from rubricsvc.core.prompt import Completion
from rubricsvc.core.reward import reward_or_null
from rubricsvc.errors import InvalidError
from rubricsvc.services.criterion_buffers import CriterionBuffers
from trainer.config import EvolveConfig
from trainer.data.tasks import Task
from trainer.event_loop import EventLoopThread
from trainer.evolution.round import PromptRound, run_trials
from trainer.history import Metrics
from trainer.rewards.source import JudgeRewards, RewardSource, ScoredRollout, places_by_task
from workers.authoring.author import GenerationError
from workers.authoring.evolution.online import Proposals, Proposer
from workers.engines import make_engine
from workers.engines.base import Engine, error_message
from workers.engines.budget import SpendingLimit, current_budget

log = logging.getLogger(__name__)


class OnlineEvolution:
    """Evolves the rubrics of a run. The proposer's and the trusted judge's engines are closed on exit.

    Args:
        config: The settings; its judges are values, not names.
        buffers: The buffers of the run.
        rewards: The reward source of the run, by which criteria are tried.
        engine: The engine of the proposer; by default that of its judge.
        trusted: A source of trusted verdicts; by default the trusted judge of the settings.

    Raises:
        InvalidError: A judge is given by name, or there is a budget and the proposer has no price.
    """

    def __init__(
        self,
        config: EvolveConfig,
        buffers: CriterionBuffers,
        rewards: RewardSource,
        *,
        engine: Engine | None = None,
        trusted: RewardSource | None = None,
    ) -> None:
        proposer, judge = config.proposer, config.trusted
        if isinstance(proposer, str) or isinstance(judge, str):
            hint = "give the judges themselves; `rubricsvc runs start` looks them up"
            raise InvalidError("the judges of [evolve] are names", hint=hint, path="evolve")
        if config.budget is not None and proposer.unpriced:
            hint = "set endpoint.price of the judge, or leave evolve.budget out"
            raise InvalidError(f"unknown price: {', '.join(proposer.unpriced)}", hint=hint, path="evolve.budget")
        self._config, self._buffers, self._rewards = config, buffers, rewards
        self._engine = engine or make_engine(proposer)
        self._proposer = Proposer(self._engine, proposer, max_shown=config.shown, max_proposals=config.max_proposals)
        self._own_trusted = JudgeRewards(judge) if trusted is None and judge is not None else None
        self._trusted = trusted or self._own_trusted
        self._loop = EventLoopThread("proposals")

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise an InvalidError unless criteria may be added to the rubric of each task."""
        for rubric in {task.rubric.digest: task.rubric for task in tasks}.values():
            check_evolvable(rubric)

    def tasks(self, step: int, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks of a step (from 0) with the rubric versions that are in use."""
        rubrics = self._buffers.begin_step(step, [(task.prompt, task.rubric) for task in tasks])
        return [replace(task, rubric=rubric) for task, rubric in zip(tasks, rubrics, strict=True)]

    def state(self) -> dict[str, Any]:
        """Return the versions in use, as plain data for a checkpoint."""
        return self._buffers.state()

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Continue with the versions of a checkpoint; None: it has none yet."""
        if state is not None:
            self._buffers.restore(state)

    def evolve(
        self,
        step: int,
        authored: Sequence[Task],
        used: Sequence[Task],
        completions: Sequence[Completion],
        scored: Sequence[ScoredRollout],
    ) -> Metrics:
        """Return the metrics of a step; if it is a step with rounds, hold one for each prompt.

        A proposer or a judge that fails is recorded, and changes no version.

        Args:
            step: The step, from 0.
            authored: The task of each completion, with the authored rubric.
            used: The same with the version that the completion was scored by.
            completions: The completions of the step.
            scored: Their rewards and verdicts.
        """
        metrics = {"evolve/authored_reward": _authored_reward(authored, scored)}
        if (step + 1) % self._config.every:
            return metrics
        done: list[EvolutionRound] = []
        rounds: list[PromptRound] = []
        for places in places_by_task(authored):
            first = places[0]
            buffer = self._buffers.open(step, (authored[first].prompt, authored[first].rubric))
            if buffer.done is not None:
                done.append(buffer.done)
                continue
            members = [(completions[place], scored[place]) for place in places]
            labelled = buffer.labelled if self._config.labels else ()
            rounds.append(PromptRound(authored[first], used[first].rubric, buffer.entries, labelled, members))
        self._propose(rounds, step)
        self._try(rounds, step)
        for one in rounds:
            rubric, result = one.end(step, self._config, trusted=self._trusted is not None)
            if result.failure:
                log.warning("step %d, prompt %.40r: %s", step + 1, one.task.prompt.text, result.failure)
            self._buffers.end_round(step, (one.task.prompt, one.task.rubric), one.entries, rubric, result)
            done.append(result)
        return metrics | _metrics(done)

    def _propose(self, rounds: Sequence[PromptRound], step: int) -> None:
        """Ask for proposals on all groups at once, as far as the budget goes."""
        limit = SpendingLimit(self._config.budget, self._buffers.spent())

        async def ask() -> list[Proposals | str]:
            return await asyncio.gather(*(self._proposals(one, step, limit) for one in rounds))

        for one, found in zip(rounds, self._loop.run(ask()), strict=True):
            if isinstance(found, str):
                one.failures.append(found)
            else:
                one.add(found)
        if limit.exceeded:
            message = "step %d: $%.4g of evolve.budget = %g are spent; the rest does not cover all proposals"
            log.warning(message, step + 1, limit.spent, limit.limit)

    async def _proposals(self, one: PromptRound, step: int, limit: SpendingLimit) -> Proposals | str:
        """Return the proposals on one group, or why there are none."""
        current_budget.set(_RoundBudget(limit, one))  # of this task alone
        if len({completion.text for completion, scored in one.members if scored.reward.value is not None}) < 2:
            return Proposals()  # nothing differs
        group = [(completion, scored.reward.value) for completion, scored in one.members]
        try:
            return await self._proposer.propose(one.task.prompt, one.task.rubric, one.entries, group, step)
        except GenerationError as error:
            return f"{error.reason}: {error}"
        except Exception as error:  # noqa: BLE001 - an engine is foreign code, and its fault must not end the training
            return error_message(error)

    def _try(self, rounds: Sequence[PromptRound], step: int) -> None:
        """Measure the criteria of all rounds that are due."""
        for one in rounds:
            one.begin_trials(step, self._config)
        trials = [trial for one in rounds if (trial := one.trial())]
        run_trials(self._rewards, trials)
        run_trials(self._rewards, [trial for one in rounds if (trial := one.label_trial())])
        if self._trusted is not None:
            run_trials(self._trusted, [trial for one in rounds if (trial := one.trusted_trial())])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.run(self._engine.aclose())
        self._loop.close()
        if self._own_trusted is not None:
            self._own_trusted.__exit__(*error)


class _RoundBudget:
    """The budget of a run's proposals in one round, which counts its own cost."""

    def __init__(self, limit: SpendingLimit, one: PromptRound) -> None:
        self.reserve, self._limit, self._round = limit.reserve, limit, one

    def settle(self, max_cost: float, cost: float, /) -> None:
        """Replace a reservation by the cost of the finished call."""
        self._limit.settle(max_cost, cost)
        self._round.cost += cost


def _authored_reward(authored: Sequence[Task], scored: Sequence[ScoredRollout]) -> float:
    """Return the mean reward by the authored rubrics, from the same verdicts; NaN without any."""
    rewards = [
        reward_or_null(task.rubric, [verdict for verdict in one.verdicts if verdict.criterion in task.rubric.by_key])
        for task, one in zip(authored, scored, strict=True)
        if one.verdicts
    ]
    known = mean_known([one.value for one in rewards])
    return math.nan if known is None else known


def _metrics(rounds: Sequence[EvolutionRound]) -> Metrics:
    """Return the sums over the rounds of a step, and the mean number of active criteria."""
    lists = ("proposed", "refused", "untested", "activated", "reactivated", "retired")
    sums = {f"evolve/{name}": sum(len(getattr(one, name)) for one in rounds) for name in lists}
    failed = sum(one.failure is not None for one in rounds)
    means = {"evolve/active": sum(one.active for one in rounds) / len(rounds)}
    cost = sum(one.cost for one in rounds)
    return {"evolve/rounds": len(rounds), "evolve/failed": failed, **sums, **means, "evolve/cost": cost}
