"""One round of one prompt: what is measured of which criteria, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rubricsvc.core.criterion_buffer import (
    ACTIVE,
    BUFFER_RETIRED,
    FROZEN,
    PROPOSED,
    BufferedCriterion,
    EvolutionRound,
    evolved_rubric,
)
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.stats.criterion_buffer import due, measured, selected
from trainer.config import EvolveConfig
from trainer.data.tasks import Task
from trainer.rewards.source import RewardSource, ScoredRollout, validated
from workers.authoring.evolution.online import Proposals
from workers.engines.base import error_message

CriterionValues = dict[str, list[float | None]]
"""Values by criterion key, one for each completion; None where it was not judged."""


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

    @property
    def task(self) -> Task:
        """The task that is scored: weights, vetoes and coverage are not what is tried."""
        plain = [one.model_copy(update={"weight": 1.0, "required": False, "group": ()}) for one in self.criteria]
        return Task(self.prompt, Rubric(criteria=tuple(plain), min_coverage=0.0))


def run_trials(source: RewardSource, trials: Sequence[CriterionTrial]) -> None:
    """Score all trials at once, as rollouts are scored. A source that raises is a failure of each."""
    tasks = [task for one in trials for task in [one.task] * len(one.completions)]
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

    def add(self, proposals: Proposals) -> None:
        """Add proposals to the buffer."""
        self.proposals = proposals
        self.entries = [*self.entries, *proposals.accepted]

    def begin_trials(self, step: int, config: EvolveConfig) -> None:
        """Find out what is due, and take the values that the step's own verdicts have."""
        keys = set(due(self.entries, step, retest_every=config.retest_every, max_retests=config.max_retests))
        self._due = [entry for entry in self.entries if entry.key in keys]
        asked = {one.key: one.question for one in self.used.criteria}
        known = [entry.criterion for entry in self.entries if asked.get(entry.key) == entry.criterion.question]
        self._values = columns(known, [scored for _, scored in self.members])

    def trial(self) -> CriterionTrial | None:
        """Return what is to be tried by the judge of the rewards on the group."""
        missing = [entry.criterion for entry in self._due if entry.key not in self._values]
        return self._trial(missing, [completion for completion, _ in self.members], self._values)

    def trusted_trial(self) -> CriterionTrial | None:
        """Return what is to be tried by the trusted judge on the group."""
        due_now = [entry.criterion for entry in self._due]
        return self._trial(due_now, [completion for completion, _ in self.members], self._trusted)

    def label_trial(self) -> CriterionTrial | None:
        """Return what is to be tried on the labelled completions: once for each criterion, at its first trial."""
        new = [entry.criterion for entry in self._due if not entry.trials]
        return self._trial(new, [completion for completion, _ in self.labelled], self._label_values)

    def _trial(
        self, criteria: Sequence[Criterion], completions: Sequence[Completion], values: CriterionValues
    ) -> CriterionTrial | None:
        if not criteria or not completions:
            return None
        return CriterionTrial(self.task.prompt, criteria, completions, values, self.failures)

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
        moved = [(before[entry.key], entry.state, entry.key) for entry in self.entries]
        result = EvolutionRound(
            failure="; ".join(dict.fromkeys(self.failures)) or None,
            proposed=tuple(entry.key for entry in self.proposals.accepted),
            refused=tuple(self.proposals.refused),
            untested=tuple(entry.key for entry in self._due if entry.key not in tested),
            activated=_keys(moved, PROPOSED, ACTIVE),
            reactivated=_keys(moved, BUFFER_RETIRED, ACTIVE),
            retired=_keys(moved, ACTIVE, BUFFER_RETIRED),
            active=sum(entry.state == ACTIVE for entry in self.entries),
            raw_reply=self.proposals.raw_reply,
            cost=self.cost,
        )
        return evolved_rubric(self.task.rubric, self.entries, config.weight), result

    def _measured(self, entry: BufferedCriterion, step: int, trusted: bool) -> BufferedCriterion | None:
        """Return the entry after its trial; None where a part of it failed, so that nothing is concluded from it."""
        compared, labels = self._trusted.get(entry.key, []), list[tuple[float, float]]()
        if entry.state != FROZEN:
            if trusted and not _known(compared):
                return None
            if self.labelled and not entry.trials:
                values = self._label_values.get(entry.key, [])
                if not _known(values):
                    return None
                scores = (score for _, score in self.labelled)
                labels = [(value, score) for value, score in zip(values, scores, strict=True) if value is not None]
        return measured(entry, step, self._values.get(entry.key, ()), trusted=compared, labels=labels)


def _known(values: Sequence[float | None]) -> bool:
    return any(value is not None for value in values)


def _keys(moved: Sequence[tuple[str, str, str]], before: str, after: str) -> tuple[str, ...]:
    return tuple(key for was, now, key in moved if (was, now) == (before, after))
