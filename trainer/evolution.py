"""Rubrics that evolve while the policy trains: rounds of proposals, trials and selection, before a step's update.

A round works on the completions that the step has sampled and scored. Its rubric version is used from the next step of
the prompt on, so that all members of a group are scored by the same version. The database records the version of each
step and each round: a step that is repeated after a resume uses the same ones, and asks nothing again.

::

    versions = RunEvolutions(db, "first-3f2a9c1d", approve="auto")      # rubricsvc.services.evolutions
    with OnlineEvolution(config.evolve, versions, rewards) as evolution:
        train(policy, tasks, rewards, config, evolution=evolution)
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from rubricsvc.core.evolution import (
    ACTIVE,
    BUFFER_RETIRED,
    FROZEN,
    PROPOSED,
    BufferedCriterion,
    EvolutionRound,
    Proposals,
    check_evolvable,
    evolved_rubric,
)
from rubricsvc.core.panel import mean_known
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import reward_or_null
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.services.evolutions import RunEvolutions
from rubricsvc.stats.evolution import due, measured, selected
from trainer.config import EvolveConfig
from trainer.data.tasks import Task
from trainer.event_loop import EventLoopThread
from trainer.recording import Metrics
from trainer.rewards import JudgeRewards, RewardSource, ScoredRollout, places_by_task, validated
from workers.authoring.author import GenerationError
from workers.authoring.evolution import Proposer
from workers.engines import make_engine
from workers.engines.base import Engine, error_message
from workers.engines.budget import SpendingLimit, current_budget

log = logging.getLogger(__name__)

CriterionValues = dict[str, list[float | None]]
"""Values by criterion key, one for each completion; None where it was not judged."""
TrialKind = Literal["group", "labels", "trusted"]


@dataclass
class CriterionTrial:
    """Criteria to be tried on completions of a prompt, by a reward source.

    Attributes:
        values: The results; empty until then, and if the source fails.
        failures: Where a failure is added.
    """

    prompt: Prompt
    criteria: Sequence[Criterion]
    completions: Sequence[Completion]
    values: CriterionValues
    failures: list[str]


def run_trials(source: RewardSource, trials: Sequence[CriterionTrial]) -> None:
    """Score all trials at once, as rollouts are scored. A source that raises is a failure of each."""
    tasks: list[Task] = []
    for one in trials:  # weights, vetoes and coverage are not what is tried
        plain = [each.model_copy(update={"weight": 1.0, "required": False, "group": ()}) for each in one.criteria]
        tasks += [Task(one.prompt, Rubric(criteria=tuple(plain), min_coverage=0.0))] * len(one.completions)
    completions = [completion for one in trials for completion in one.completions]
    if not completions:
        return
    try:
        scored = validated(source.score(tasks, completions), completions)
    except Exception as error:  # noqa: BLE001 - a trial changes no reward, and must not end the training
        for one in trials:
            one.failures.append(f"trial: {error_message(error)}")
        return
    place = 0
    for one in trials:
        results = scored[place : place + len(one.completions)]
        place += len(results)
        one.values |= columns(one.criteria, results)


def columns(criteria: Sequence[Criterion], scored: Sequence[ScoredRollout]) -> CriterionValues:
    """Return the values of criteria in verdicts."""
    by_key = [{verdict.criterion: verdict.value for verdict in one.verdicts} for one in scored]
    return {criterion.key: [values.get(criterion.key) for values in by_key] for criterion in criteria}


@dataclass
class PromptRound:
    """The round of one prompt.

    Attributes:
        task: The prompt with its authored rubric.
        used: The version that the members were scored by.
        entries: The buffer; the proposals are added to it.
        labelled: Completions with people's overall labels.
        members: The completions of the group, with their rewards and verdicts.
        failures: Why nothing was proposed or tried.
        cost: US dollars of the proposer's replies.
    """

    task: Task
    used: Rubric
    entries: Sequence[BufferedCriterion]
    labelled: Sequence[tuple[Completion, float]]
    members: Sequence[tuple[Completion, ScoredRollout]]
    failures: list[str] = field(default_factory=list)
    cost: float = 0.0
    proposals: Proposals = field(default_factory=Proposals)
    _due: list[BufferedCriterion] = field(default_factory=list)
    _values: CriterionValues = field(default_factory=dict)
    _trusted: CriterionValues = field(default_factory=dict)
    _label_values: CriterionValues = field(default_factory=dict)

    def trials(self, step: int, config: EvolveConfig) -> dict[TrialKind, CriterionTrial]:
        """Find out what is due, and return what is to be tried, where there is something.

        ``group`` is tried by the judge of the rewards on the completions of the group, unless the step's own verdicts
        have the values, ``trusted`` by the trusted judge, and ``labels`` by the judge of the rewards on the labelled
        completions: once for each criterion, at its first trial.
        """
        keys = set(due(self.entries, step, retest_every=config.retest_every, max_retests=config.max_retests))
        self._due = [entry for entry in self.entries if entry.key in keys]
        asked = {one.key: one.question for one in self.used.criteria}
        known = [entry.criterion for entry in self.entries if asked.get(entry.key) == entry.criterion.question]
        self._values = columns(known, [scored for _, scored in self.members])
        group = [completion for completion, _ in self.members]
        missing = [entry.criterion for entry in self._due if entry.key not in self._values]
        new = [entry.criterion for entry in self._due if not entry.trials]
        plans: dict[TrialKind, tuple[list[Criterion], list[Completion], CriterionValues]] = {
            "group": (missing, group, self._values),
            "labels": (new, [completion for completion, _ in self.labelled], self._label_values),
            "trusted": ([entry.criterion for entry in self._due], group, self._trusted),
        }
        return {
            kind: CriterionTrial(self.task.prompt, criteria, completions, values, self.failures)
            for kind, (criteria, completions, values) in plans.items()
            if criteria and completions
        }

    def end(self, step: int, config: EvolveConfig, *, trusted: bool) -> tuple[Rubric, EvolutionRound]:
        """Measure and select; return the rubric that the buffer makes now, and what was done."""
        tested = {}
        for entry in self.entries:
            if (entry.state == FROZEN or entry in self._due) and (after := self._measured(entry, step, trusted)):
                tested[entry.key] = after
        before = {entry.key: entry.state for entry in self.entries}
        self.entries = selected(
            [tested.get(entry.key, entry) for entry in self.entries],
            tested.keys(),
            max_active=config.max_active,
            min_separation=config.min_separation,
            referenced=trusted or bool(self.labelled),
        )
        moved = defaultdict[tuple[str, str], list[str]](list)
        for entry in self.entries:
            moved[before[entry.key], entry.state].append(entry.key)
        result = EvolutionRound(
            failure="; ".join(dict.fromkeys(self.failures)) or None,
            proposed=tuple(entry.key for entry in self.proposals.accepted),
            refused=tuple(self.proposals.refused),
            untested=tuple(entry.key for entry in self._due if entry.key not in tested),
            activated=tuple(moved[PROPOSED, ACTIVE]),
            reactivated=tuple(moved[BUFFER_RETIRED, ACTIVE]),
            retired=tuple(moved[ACTIVE, BUFFER_RETIRED]),
            active=sum(entry.state == ACTIVE for entry in self.entries),
            raw_reply=self.proposals.raw_reply,
            cost=self.cost,
        )
        return evolved_rubric(self.task.rubric, self.entries, config.weight), result

    def _measured(self, entry: BufferedCriterion, step: int, trusted: bool) -> BufferedCriterion | None:
        """Return the entry after its trial; None where a part of it failed, so that nothing is concluded from it."""
        compared, labels = self._trusted.get(entry.key, []), list[tuple[float, float]]()
        if entry.state != FROZEN:
            if trusted and all(value is None for value in compared):
                return None
            if self.labelled and not entry.trials:
                values = self._label_values.get(entry.key, [])
                if all(value is None for value in values):
                    return None
                scores = (score for _, score in self.labelled)
                labels = [(value, score) for value, score in zip(values, scores, strict=True) if value is not None]
        return measured(entry, step, self._values.get(entry.key, ()), trusted=compared, labels=labels)


def spread(group: Sequence[tuple[Completion, float | None]], count: int) -> list[Completion]:
    """Return up to ``count`` completions with different texts, from the worst to the best reward at equal distances.

    They are in an order that says nothing about their rewards, and always the same.
    """
    distinct = {one.text: (one, reward) for one, reward in group if reward is not None}
    ranked = [one for one, _ in sorted(distinct.values(), key=lambda pair: (pair[1], pair[0].digest))]
    if len(ranked) > count:
        ranked = [ranked[round(place * (len(ranked) - 1) / (count - 1))] for place in range(count)]
    return sorted(ranked, key=lambda one: one.digest)


class OnlineEvolution:
    """Evolves the rubrics of a run. The proposer's and the trusted judge's engines are closed on exit.

    Args:
        config: The settings; its judges are values, not names.
        versions: The evolutions of the run, an attribute too: its state is that of a checkpoint.
        rewards: The reward source of the run, by which criteria are tried.
        engine: The engine of the proposer; by default that of its judge.
        trusted: A source of trusted verdicts; by default the trusted judge of the settings.

    Raises:
        InvalidError: A judge is given by name, or there is a budget and the proposer has no price.
    """

    def __init__(
        self,
        config: EvolveConfig,
        versions: RunEvolutions,
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
        self._config, self.versions, self._rewards = config, versions, rewards
        self._engine = engine or make_engine(proposer)
        self._proposer = Proposer(self._engine, proposer, max_proposals=config.max_proposals)
        self._own_trusted = JudgeRewards(judge) if trusted is None and judge is not None else None
        self._trusted = trusted or self._own_trusted
        self._loop = EventLoopThread("proposals")

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise an InvalidError unless criteria may be added to the rubric of each task."""
        for rubric in {task.rubric.digest: task.rubric for task in tasks}.values():
            check_evolvable(rubric)

    def tasks(self, step: int, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks of a step (from 0) with the rubric versions that are in use."""
        rubrics = self.versions.begin_step(step, [(task.prompt, task.rubric) for task in tasks])
        return [replace(task, rubric=rubric) for task, rubric in zip(tasks, rubrics, strict=True)]

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
        authored_rewards = [  # from the same verdicts
            reward_or_null(task.rubric, [each for each in one.verdicts if each.criterion in task.rubric.by_key]).value
            for task, one in zip(authored, scored, strict=True)
            if one.verdicts
        ]
        mean = mean_known(authored_rewards)
        metrics: Metrics = {"evolve/authored_reward": math.nan if mean is None else mean}
        if (step + 1) % self._config.every:
            return metrics
        done: list[EvolutionRound] = []
        rounds: list[PromptRound] = []
        for places in places_by_task(authored):
            first = places[0]
            buffer = self.versions.open(step, (authored[first].prompt, authored[first].rubric))
            if buffer.done is not None:
                done.append(buffer.done)
                continue
            members = [(completions[place], scored[place]) for place in places]
            labelled = buffer.labelled if self._config.labels else ()
            rounds.append(PromptRound(authored[first], used[first].rubric, buffer.entries, labelled, members))
        self._propose(rounds, step)
        trials = [one.trials(step, self._config) for one in rounds]
        kinds: tuple[TrialKind, ...] = ("group", "labels", "trusted")
        for kind in kinds:
            source = self._trusted if kind == "trusted" else self._rewards
            if source is not None:
                run_trials(source, [each[kind] for each in trials if kind in each])
        for one in rounds:
            rubric, result = one.end(step, self._config, trusted=self._trusted is not None)
            if result.failure:
                log.warning("step %d, prompt %.40r: %s", step + 1, one.task.prompt.text, result.failure)
            self.versions.end_round(step, (one.task.prompt, one.task.rubric), one.entries, rubric, result)
            done.append(result)
        lists = ("proposed", "refused", "untested", "activated", "reactivated", "retired")
        metrics |= {f"evolve/{name}": sum(len(getattr(one, name)) for one in done) for name in lists}
        return metrics | {
            "evolve/rounds": len(done),
            "evolve/failed": sum(one.failure is not None for one in done),
            "evolve/active": sum(one.active for one in done) / len(done),
            "evolve/cost": sum(one.cost for one in done),
        }

    def _propose(self, rounds: Sequence[PromptRound], step: int) -> None:
        """Ask for proposals on all groups at once, as far as the budget goes."""
        limit = SpendingLimit(self._config.budget, self.versions.spent())

        async def ask() -> list[Proposals | str]:
            return await asyncio.gather(*(self._proposals(one, step, limit) for one in rounds))

        for one, found in zip(rounds, self._loop.run(ask()), strict=True):
            if isinstance(found, str):
                one.failures.append(found)
            else:
                one.proposals, one.entries = found, [*one.entries, *found.accepted]
        if limit.exceeded:
            message = "step %d: $%.4g of evolve.budget = %g are spent; the rest does not cover all proposals"
            log.warning(message, step + 1, limit.spent, limit.limit)

    async def _proposals(self, one: PromptRound, step: int, limit: SpendingLimit) -> Proposals | str:
        """Return the proposals on one group, or why there are none."""
        current_budget.set(_RoundBudget(limit, one))  # of this task alone
        if len({completion.text for completion, scored in one.members if scored.reward.value is not None}) < 2:
            return Proposals()  # nothing differs
        group = [(completion, scored.reward.value) for completion, scored in one.members]
        shown = spread(group, self._config.shown)
        try:
            return await self._proposer.propose(
                one.task.rubric, one.entries, step, prompt=one.task.prompt, answers=shown
            )
        except GenerationError as error:
            return f"{error.reason}: {error}"
        except Exception as error:  # noqa: BLE001 - an engine is foreign code, and its fault must not end the training
            return error_message(error)

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
