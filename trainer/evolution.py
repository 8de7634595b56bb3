"""Rubrics that evolve while the policy trains: rounds between the scoring of a step and its update.

A round works on the completions that the step has sampled and scored. Its rubric version is used from the next step of
the prompt on, so that all members of a group are scored by the same version. The database records the version of each
step and each round: a step that is repeated after a resume uses the same ones, and asks nothing again.

::

    with OnlineEvolution(config.evolve, service.evolutions, "first-3f2a9c1d", rewards) as evolution:
        train(policy, tasks, rewards, config, evolution=evolution)
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from rubricsvc.core.estimate import mean_known
from rubricsvc.core.evolution import EvolutionRound, EvolutionState, RetirementReason
from rubricsvc.core.prompt import Completion
from rubricsvc.core.reward import check_formula, formula_for, reward_or_null
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.schemas.base import every_row
from trainer.config import EvolveConfig
from trainer.data.tasks import Task
from trainer.recording import Metrics
from trainer.rewards import JudgeRewards, RewardSource, ScoredRollout, places_by_task, validated
from workers.engines import make_engine
from workers.engines.base import error_message
from workers.engines.budget import SpendingLimit
from workers.event_loop import EventLoopThread, all_of
from workers.evolution import Round, evolved_rubric, hold_rounds, measured, propose_criteria, trial_rubric

if TYPE_CHECKING:
    from rubricsvc.services.evolutions import Evolutions

log = logging.getLogger(__name__)

Members = Sequence[tuple[Completion, ScoredRollout]]
"""Completions of one prompt, with their rewards and verdicts."""
CriterionValues = dict[str, list[float | None]]
"""Values by criterion key, one for each completion; None where it was not judged."""


def columns(criteria: Sequence[Criterion], scored: Sequence[ScoredRollout]) -> CriterionValues:
    """Return the values of criteria in verdicts."""
    by_key = [{verdict.criterion: verdict.value for verdict in one.verdicts} for one in scored]
    return {criterion.key: [values.get(criterion.key) for values in by_key] for criterion in criteria}


def spread(members: Members, count: int) -> list[Completion]:
    """Return up to ``count`` completions with different texts, from the worst to the best reward at equal distances.

    They are in an order that says nothing about their rewards, and always the same.
    """
    rewards = [(one, scored.reward.value) for one, scored in members]
    distinct = {one.text: (one, reward) for one, reward in rewards if reward is not None}
    ranked = [one for one, _ in sorted(distinct.values(), key=lambda pair: (pair[1], pair[0].digest))]
    if len(ranked) > count:
        ranked = [ranked[round(place * (len(ranked) - 1) / (count - 1))] for place in range(count)]
    return sorted(ranked, key=lambda one: one.digest)


class OnlineEvolution(AbstractContextManager["OnlineEvolution"]):
    """Evolves the rubrics of a run on its rollouts. Engines of the proposer and the trusted judge are closed on exit.

    Criteria are tried by the reward source of the run. ``run`` is its name, which no other run has; ``evolutions``, of
    a service here or over HTTP, records what a step used and what its round did, once.

    Raises:
        InvalidError: A judge is given by name; there is a budget and the proposer has no price; or people approve all
            rubrics, and ``config.approve`` is ``auto``.
    """

    def __init__(self, config: EvolveConfig, evolutions: Evolutions, run: str, rewards: RewardSource) -> None:
        proposer, judge = config.proposer, config.trusted
        if isinstance(proposer, str) or isinstance(judge, str):
            hint = "give the judges themselves; `rubricsvc runs start` looks them up"
            raise InvalidError("the judges of [evolve] are names", hint=hint, path="evolve")
        if config.budget is not None and proposer.unpriced:
            hint = "set endpoint.price of the judge, or leave evolve.budget out"
            raise InvalidError(f"unknown price: {', '.join(proposer.unpriced)}", hint=hint, path="evolve.budget")
        self._config, self._judge, self._rewards = config, proposer, rewards
        self._evolutions, self._run = evolutions, run
        self._states: dict[tuple[str, str], EvolutionState] = {}
        self._begin_step(0, ())
        self._engine = make_engine(proposer)
        self._trusted = JudgeRewards(judge) if judge is not None else None
        self._loop = EventLoopThread("proposals")
        self._groups: Mapping[int, tuple[Task, Members]] = {}

    @staticmethod
    def check(tasks: Sequence[Task]) -> None:
        """Raise an InvalidError unless criteria with small weights of either sign may be added to each rubric."""
        added = [Criterion(key=f"evolved {weight}", text="Is added.", weight=weight) for weight in (1, -1)]
        for base in {task.rubric.digest: task.rubric for task in tasks}.values():
            extended = base.model_copy(update={"criteria": (*base.criteria, *added)})
            try:
                check_formula(extended)
                summed = formula_for(extended, base.formula).weighting == "absolute"
            except ValueError:
                summed = False
            if not summed or base.groups or base.expression:
                message = f"criteria cannot be added to a rubric with the formula {base.formula!r}"
                hint = "use a formula that sums weights of both signs, such as weighted_mean or healthbench"
                raise InvalidError(message, hint=hint, path="evolve")

    def tasks(self, step: int, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks of a step (from 0) with the rubric versions that are in use."""
        self._begin_step(step, tasks)
        return [replace(task, rubric=self._states[task.prompt.digest, task.rubric.digest].rubric) for task in tasks]

    def _begin_step(self, step: int, tasks: Sequence[Task]) -> None:
        asked = {(one.prompt.digest, one.rubric.digest): one for one in tasks}
        given = tuple((one.prompt, one.rubric, one.name, one.rubric_name) for one in asked.values())
        used = self._evolutions.begin_step(run=self._run, step=step, approve=self._config.approve, tasks=given)
        self._states = dict(zip(asked, used, strict=True))

    def evolve(
        self, step: int, authored: Sequence[Task], completions: Sequence[Completion], scored: Sequence[ScoredRollout]
    ) -> Metrics:
        """Return the metrics of a step (from 0); if it is a step with rounds, hold one for each prompt.

        ``authored`` is the task of each completion, with the authored rubric; ``scored`` are rewards and verdicts. A
        proposer or a judge that fails is recorded, and changes no version.
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
        groups = places_by_task(authored)
        tasks = [authored[places[0]] for places in groups]
        members = [[(completions[place], scored[place]) for place in places] for places in groups]
        rounds = list[Round]()
        for task in tasks:
            state = self._states[task.prompt.digest, task.rubric.digest]
            known, entries = state.round or EvolutionRound(), list(state.entries)
            rounds.append(Round(state.id, step, task.rubric, state.rubric, entries, known, state.round is None))
        self._groups = dict(zip([one.id for one in rounds], zip(tasks, members, strict=True), strict=True))
        hold_rounds(self._evolutions, rounds, self, approve=self._config.approve)
        for one in rounds:
            if one.done.failure is not None:
                text = self._groups[one.id][0].prompt.text
                log.warning("step %d, prompt %.40r: %s", step + 1, text, one.done.failure)
        done = [one.done for one in rounds]
        lists = ("proposed", "refused", "untested", "activated", "retired")
        return metrics | {
            **{f"evolve/{name}": sum(len(getattr(one, name)) for one in done) for name in lists},
            "evolve/rounds": len(done),
            "evolve/failed": sum(one.failure is not None for one in done),
            "evolve/active": sum(one.active for one in done) / len(done),
            "evolve/cost": sum(one.cost for one in done),
        }

    def propose(self, rounds: Sequence[Round]) -> None:
        """Ask for proposals on all groups whose texts differ at once, as far as the budget goes."""
        spent = sum(one.cost for one in every_row(self._evolutions.page, run=self._run)) if self._config.budget else 0.0
        limit = SpendingLimit(self._config.budget, spent)

        async def ask(one: Round) -> None:
            task, members = self._groups[one.id]
            shown = spread(members, self._config.shown)
            if len(shown) < 2:
                return
            try:
                added, one.done = await propose_criteria(
                    *(self._engine, self._judge, one.base, one.entries),
                    texts={completion.digest: completion.text for completion in shown},
                    most=self._config.max_proposals,
                    limit=limit,
                    prompt=task.prompt,
                )
            except Exception as error:  # noqa: BLE001 - an engine is foreign code, and its fault must not end the training
                one.failures.append(error_message(error))
                return
            one.entries += added

        self._loop.run(all_of(map(ask, rounds)))
        if limit.exceeded:
            message = "$%.4g of evolve.budget = %g are spent; the rest does not cover all proposals"
            log.warning(message, limit.spent, limit.limit)

    def measure(self, rounds: Sequence[Round]) -> None:
        """Try what is due on the groups of the step, by the judge of the rewards and by the trusted one.

        Due are proposed and active criteria, and retired ones whose newest trial is long ago. The step's own verdicts
        are not asked for again.
        """
        dues, own = list[list[Criterion]](), list[CriterionValues]()
        for one in rounds:
            _, members = self._groups[one.id]
            retested = one.step - self._config.retest_every
            asked = {each.key: each.question for each in one.used.criteria}
            known = [each.criterion for each in one.entries if asked.get(each.key) == each.criterion.question]
            own.append(columns(known, [scored for _, scored in members]))
            dues.append(
                [
                    each.criterion
                    for each in one.entries
                    if each.state in ("proposed", "active")
                    or (each.state == "retired" and (each.tested_step or 0) <= retested)
                ]
            )
        new = [[each for each in due if each.key not in mine] for due, mine in zip(dues, own, strict=True)]
        found = self._try(self._rewards, rounds, new), self._try(self._trusted, rounds, dues)
        for one, due, mine, tried, trusted in zip(rounds, dues, own, *found, strict=True):
            values, keys = mine | tried, [each.key for each in due]
            for place, entry in enumerate(one.entries):
                compared = trusted.get(entry.key, [])
                if entry.key in keys:
                    if self._trusted is not None and all(value is None for value in compared):
                        continue  # of a trial that failed in a part nothing is concluded
                elif entry.state != "frozen":
                    continue
                one.entries[place] = measured(entry, one.step, values.get(entry.key, ()), compared) or entry
            one.untested = [each.key for each in one.entries if each.key in keys and each.tested_step != one.step]

    def _try(
        self, source: RewardSource | None, rounds: Sequence[Round], due: Sequence[Sequence[Criterion]]
    ) -> list[CriterionValues]:
        """Score what is due in each round at once, as rollouts are scored; return the values, none without a source.

        A source that raises is a failure of each round.
        """
        tasks, completions = list[Task](), list[Completion]()
        tried = [one for one in zip(rounds, due, strict=True) if source is not None and one[1]]
        for one, criteria in tried:
            task, members = self._groups[one.id]
            tasks += [Task(task.prompt, trial_rubric(criteria, min_coverage=0.0))] * len(members)
            completions += [completion for completion, _ in members]
        try:
            scored = iter(validated(source.score(tasks, completions), completions) if source and tasks else ())
        except Exception as error:  # noqa: BLE001 - a trial changes no reward, and must not end the training
            for one, _ in tried:
                one.failures.append(f"trial: {error_message(error)}")
            return [{} for _ in rounds]
        values: dict[int, CriterionValues] = {}
        for one, criteria in tried:
            values[one.id] = columns(criteria, list(islice(scored, len(self._groups[one.id][1]))))
        return [values.get(one.id, {}) for one in rounds]

    def decide(self, one: Round) -> tuple[Mapping[str, RetirementReason | None], Rubric]:
        """Keep the criteria that separate best, with a small share of the authored weight.

        Candidates are those that are active or were tested at this step. Where there is a trusted judge, agreement
        counts: nothing confirms what has no pairs to compare.
        """
        reasons: dict[str, RetirementReason | None] = {}
        ranked: list[tuple[float, int, str]] = []
        for place, entry in enumerate(one.entries):
            if entry.state == "frozen" or (entry.state != "active" and entry.tested_step != one.step):
                continue
            share = entry.agreeing / entry.pairs if entry.pairs else 0.5
            merit = (entry.separation or 0.0) * (2 * share - 1 if self._trusted is not None else 1.0)
            reasons[entry.key] = "agreement" if merit <= 0 else "limit"
            if not entry.separation or entry.separation < self._config.min_separation:
                reasons[entry.key] = "separation"
            elif merit > 0:
                ranked.append((-merit, place, entry.key))
        reasons |= {key: None for *_, key in sorted(ranked)[: self._config.max_active]}
        kept = [each for each in one.entries if reasons.get(each.key, "") is None]
        active = [each.model_copy(update={"state": "active"}) for each in kept]
        return reasons, evolved_rubric(one.base, active, self._config.weight)

    def __exit__(self, *error: object) -> None:
        self._loop.run(self._engine.aclose())
        self._loop.close()
        if self._trusted is not None:
            self._trusted.__exit__(*error)
