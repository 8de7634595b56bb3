"""The evolution of a rubric against people's labels, round by round. Needs the extra ``judging``.

Rounds propose criteria and change weights; what is new is asked of the judge on the search part alone. Prompts that
take no part in it say at the end what the best rubric gains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rubricsvc.core.evolution import (
    ACTIVE,
    BUFFER_RETIRED,
    FROZEN,
    PROPOSED,
    BufferedCriterion,
    EvolutionRequest,
    EvolutionRound,
    Objective,
    Proposals,
    evolved_rubric,
    frozen_entries,
)
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.states import DRAFT, EVOLVED
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import ConflictError, InvalidError, UnavailableError
from rubricsvc.services.editing import add_derived
from rubricsvc.services.verdict_matrix import read_matrices
from rubricsvc.stats import OnProgress
from rubricsvc.stats.criteria import reward_vector
from rubricsvc.stats.evolution import measured
from rubricsvc.stats.intervals import Floats, Ints
from rubricsvc.stats.label_search import (
    OBJECTIVES,
    Labels,
    checked,
    fitted,
    held_out_result,
    rewards_of,
    score_of,
    unit_values,
)
from rubricsvc.stats.paired import preference_pairs
from rubricsvc.store import completions, evolutions, jobs, prompts, rubrics
from rubricsvc.store import labels as stored_labels
from rubricsvc.store.evolutions import VersionUse
from rubricsvc.store.labels import Selection
from rubricsvc.store.tables import CANCELLED

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import JudgeRow, RubricRow

MIN_UNITS = {"search": 20, "held-out": 10}
MIN_PROMPTS = 5
"""Prompts with units in each part: fewer give no interval."""
SHOWN = 6
"""Completions that a proposer is shown, of those that rubric and people find most different."""
_WRITING = frozenset({"written", "trajectory"})
_LABEL = "label more completions (`rubricsvc labels import FILE`), and score them: `rubricsvc jobs submit --judge NAME`"


class BudgetExhaustedError(InvalidError):
    """The maximum cost of an evolution is reached."""


class Case(NamedTuple):
    """A completion that a proposer is shown: its prompt, its text with what people and the rubric find, its digest."""

    prompt: str
    text: str
    digest: str


class Propose(Protocol):
    """Asks a model for criteria; ``budget`` is what is left of that of the evolution, in US dollars."""

    def __call__(
        self,
        base: Rubric,
        entries: Sequence[BufferedCriterion],
        cases: Sequence[Case],
        *,
        step: int,
        budget: float | None,
    ) -> Proposals:
        """Return what the model proposes.

        Raises:
            UnavailableError: It cannot be asked.
        """
        ...


@dataclass(frozen=True)
class Labelled:
    """Completions that have labels and a reward of the start, N of them.

    Attributes:
        completions: Ids [N].
        values: Values of the start's criteria [N, C].
        labels: What people found.
        search: Rows that candidates are scored on [N]; ``held_out`` the others.
    """

    completions: Ints
    values: Floats
    labels: Labels
    search: NDArray[np.bool_]
    held_out: NDArray[np.bool_]

    @property
    def digest(self) -> str:
        """The SHA-256 of the parts, the labels and the start's verdicts."""
        found, labels = sha256(), self.labels
        for one in (self.completions, self.values, self.search, labels.pairs, labels.scored, labels.scores):
            found.update(np.ascontiguousarray(one).tobytes())
        return found.hexdigest()

    def shortage(self, objective: Objective) -> str | None:
        """Return why a part has too few units, or units of one class; None if both are enough."""
        noun = {"preferences": "preference pairs", "scores": "scored completions"}[objective]
        for name, mask in (("search", self.search), ("held-out", self.held_out)):
            part = self.labels.of_rows(mask)
            units, prompt_count = len(part.rows(objective)), part.prompts(objective)
            if units < MIN_UNITS[name] or prompt_count < MIN_PROMPTS:
                needed = f"the {name} part needs {MIN_UNITS[name]} {noun} of {MIN_PROMPTS} prompts"
                return f"{needed}, found {units} of {prompt_count}"
            if not part.varies(objective):
                return f"people distinguish nothing in the {name} part: all {units} {noun} are of one class"
        return None

    def objective(self, wanted: Objective | None) -> Objective:
        """Return the objective that is wanted, else the first that has enough labels.

        Raises:
            InvalidError: There are too few labels, or labels of one class.
        """
        problems = {one: self.shortage(one) for one in ((wanted,) if wanted else OBJECTIVES)}
        for one, problem in problems.items():
            if problem is None:
                return one
        most = max(problems, key=lambda one: len(self.labels.rows(one)))
        raise InvalidError(problems[most] or "", hint=_LABEL, path="labels")


def read_labelled(session: Session, rubric: RubricRow, judge: JudgeRow, request: EvolutionRequest) -> Labelled:
    """Return the completions that the judge scored under the rubric and that have overall scores of people.

    Raises:
        InvalidError: Nothing was scored, or the judge's verdicts depend on other completions.
    """
    if any(leaf.mode == "comparative" for leaf in judge.value.leaf_judges):
        message = f"judge {judge.name!r} compares completions: its verdicts depend on the group"
        raise InvalidError(message, hint="evolve with a readout or written judge: --judge NAME", path="judge")
    selection = Selection(judge.id, request.job_id, rubric.id)
    matrix = next(read_matrices(session, selection), None)
    if matrix is None:
        raise InvalidError(
            f"judge {judge.name!r} has scored nothing under {rubric.ref}: there are no verdicts",
            hint="the start needs verdicts: `rubricsvc jobs submit --judge NAME --rubric NAME@VERSION --wait`",
        )
    order = np.argsort(matrix.completions)  # not that of the items, which may change
    ids, values, prompt_ids = matrix.completions[order], matrix.values[order], matrix.prompts[order]
    independent = matrix.independent[order]
    place = {id_: row for row, id_ in enumerate(ids.tolist())}
    overall = [(place[id_], person, score) for id_, person, score in stored_labels.overall_labels(session, selection)]
    by_row: dict[int, list[float]] = defaultdict(list)
    for row, _, score in overall:
        by_row[row].append(score)
    scored = sorted(by_row)
    kept = ~np.isnan(reward_vector(rubric.value, values)) & np.isin(np.arange(len(ids)), scored)
    scores = np.array([np.mean(by_row[row]) for row in scored], float)
    labels = Labels(independent, preference_pairs(overall, prompt_ids), np.array(scored, np.int64), scores)
    clusters = np.random.default_rng([request.seed, 0]).permutation(np.unique(independent[kept]))
    out = np.isin(independent, clusters[: round(request.held_out * len(clusters))])
    return Labelled(ids, values, labels.of_rows(kept), kept & ~out, kept & out)


class LabelSearch:
    """Works on one evolution until it is finished; what another process has recorded is taken over.

    Args:
        db: The database.
        evolution_id: The evolution.
        score_job: Waits until a job is finished.
        propose: Asks for criteria, where the evolution has a proposer.
        on_progress: Called with the round, their number and a note.

    Raises:
        ConflictError: Labels or verdicts have changed since it was started.
    """

    def __init__(
        self,
        db: Database,
        evolution_id: int,
        score_job: Callable[[int], None],
        propose: Propose | None = None,
        on_progress: OnProgress = lambda done, total, note: None,
    ) -> None:
        self._db, self._id, self._score_job, self._propose = db, evolution_id, score_job, propose
        self._on_progress = on_progress
        with db.read() as session:
            row = evolutions.get(session, evolution_id)
            request, judge = row.request, row.judge
            if request is None or judge is None:
                raise InvalidError(f"evolution {evolution_id} is that of run {row.run}", hint="resume the run")
            self._start_id, self._start, self._judge_id = row.rubric_id, row.rubric.value, judge.id
            self._prompt_id = row.rubric.prompt_id
            # leaving a criterion out changes what such a judge is asked about the others
            leaves = judge.value.leaf_judges
            self._together = any(one.mode in _WRITING and one.criteria_per_call != 1 for one in leaves)
            self._request, self._data = request, read_labelled(session, row.rubric, judge, request)
            if self._data.digest != row.data_digest:
                message = f"what is labelled or scored has changed since evolution {evolution_id} was started"
                raise ConflictError(message, hint="start another one: the same command without --resume")
            known = [job.id for job in evolutions.jobs_of(session, evolution_id)]
        self._objective = self._data.objective(request.objective)
        self._labels = self._data.labels.of_rows(self._data.search)
        keys = [one.key for one in self._start.criteria]
        self._values: dict[str, Floats] = dict(zip(keys, self._data.values.T, strict=True))
        self._trials: dict[tuple[str, str], Floats] = {}
        for job_id in known:
            self._read(job_id)

    def run(self) -> None:
        """Hold the rounds, and compare the best rubric with the start on held-out prompts.

        Raises:
            BudgetExhaustedError: The budget is used up; with a larger one it continues.
            UnavailableError: A model cannot be asked.
        """
        current, rubric_id, entries = self._start, self._start_id, frozen_entries(self._start)
        for step in range(self._request.rounds):
            score = self._score(current)
            self._on_progress(step, self._request.rounds, f"{self._objective} {score:.4f}" if score is not None else "")
            current, rubric_id, entries = self._round(step, current, rubric_id, entries)
        self._finish(current, rubric_id, entries)
        self._on_progress(self._request.rounds, self._request.rounds, "")

    def _round(
        self, step: int, current: Rubric, rubric_id: int, entries: list[BufferedCriterion]
    ) -> tuple[Rubric, int, list[BufferedCriterion]]:
        """Hold one round unless it is recorded; return the rubric, its id and the buffer after it."""
        with self._db.write() as session:
            row = evolutions.begin_step(session, self._id, step, VersionUse(rubric_id))
            under_way, target_id = row.buffer, row.target_id or rubric_id
            if row.round is not None:
                self._ask(step, under_way)
                return rubrics.get(session, target_id).value, target_id, under_way
        proposals = Proposals()
        if under_way:
            entries = under_way  # proposed by a process that was interrupted
        elif self._propose is not None:
            cases = self._cases(step, current)
            proposals = self._propose(current, entries, cases, step=step, budget=self._left())
            if (proposals.failure or "").startswith(Reason.BUDGET):
                raise self._exhausted()
            entries = [*entries, *proposals.accepted]
            with self._db.write() as session:
                row = evolutions.begin_step(session, self._id, step, VersionUse(rubric_id))
                evolutions.write_entries(session, row, entries)
        self._ask(step, entries)
        best = self._best(current, entries)
        after = [self._after(one, best, step) for one in entries]
        was, now = ({one.key for one in rubric.criteria} for rubric in (current, best))
        done = EvolutionRound(
            failure=proposals.failure,
            proposed=tuple(one.key for one in entries if one.state == PROPOSED),
            refused=proposals.refused,
            activated=tuple(sorted(now - was)),
            retired=tuple(sorted(was - now)),
            active=sum(one.state == ACTIVE for one in after),
            raw_reply=proposals.raw_reply,
            cost=proposals.cost,
            score=self._score(best),
        )
        with self._db.write() as session:
            row = evolutions.begin_step(session, self._id, step, VersionUse(rubric_id))
            if row.round is not None:
                raise ConflictError(f"evolution {self._id} is continued by another process", hint="wait for it")
            wrote = self._store(session, best) if best != current else None
            evolutions.end_round(session, row, after, done, wrote)
        return best, wrote or rubric_id, after

    def _best(self, current: Rubric, entries: Sequence[BufferedCriterion]) -> Rubric:
        """Return the best of the rubric and its changes: a criterion added or left out, or other weights."""
        criteria = list(current.criteria)
        tried = [checked(current, criteria[:n] + criteria[n + 1 :]) for n in range(len(criteria)) if len(criteria) > 1]
        for entry in entries:
            if entry.key not in current.by_key and entry.key in self._values:
                active = entry.model_copy(update={"state": ACTIVE})
                added = evolved_rubric(self._start, [active], self._request.weight).by_key[entry.key]
                tried.append(checked(current, [*criteria, added]))
        tried.append(fitted(current, self._labels, self._values, self._objective))
        best, top = current, self._score(current)
        for rubric in filter(None, tried):
            score = self._score(rubric)
            if score is not None and (top is None or score > top + 1e-9):
                best, top = rubric, score
        return best

    def _score(self, rubric: Rubric) -> float | None:
        return score_of(self._objective, self._labels, rewards_of(rubric, self._values))

    def _after(self, entry: BufferedCriterion, best: Rubric, step: int) -> BufferedCriterion:
        """Return the entry with its state, and with what its first trial measures."""
        known = self._values.get(entry.key)
        if known is None:
            return entry
        if not entry.trials:
            values = [None if np.isnan(one) else one for one in known[self._labels.scored].tolist()]
            pairs = zip(values, self._labels.scores.tolist(), strict=True)
            labels = [(value, score) for value, score in pairs if value is not None]
            entry = measured(entry, step, values, labels=labels) or entry
        if entry.key in best.by_key:
            return entry.model_copy(update={"state": ACTIVE if entry.source else FROZEN, "reason": None})
        return entry.model_copy(update={"state": BUFFER_RETIRED, "reason": "agreement"})

    def _cases(self, step: int, rubric: Rubric) -> list[Case]:
        """Return some of the completions that rubric and people find most different."""
        rewards = rewards_of(rubric, self._values)
        units = unit_values(self._objective, self._labels, rewards)
        worst = np.argsort(units, kind="stable")[: 4 * SHOWN]
        drawn = np.random.default_rng([self._request.seed, 2, step]).permutation(worst).tolist()
        people: Mapping[int, float] = dict(zip(self._labels.scored.tolist(), self._labels.scores.tolist(), strict=True))
        paired = self._labels.pairs if self._objective == "preferences" else self._labels.scored[:, None]
        rows = list(dict.fromkeys(row for unit in drawn for row in paired[unit].tolist()))[:SHOWN]
        ids = {row: int(self._data.completions[row]) for row in rows}
        with self._db.read() as session:
            texts = completions.many(session, ids.values())
            asked = prompts.many(session, {prompt_id for prompt_id, _ in texts.values()})
        cases = []
        for row in rows:
            prompt_id, completion = texts[ids[row]]
            note = f"People gave it {people[row]:.2f} of 1; its reward is {rewards[row]:.2f}."
            cases.append(Case(asked[prompt_id].text, f"{note}\n\n{completion.text}", completion.digest))
        return cases

    def _ask(self, step: int, entries: Sequence[BufferedCriterion]) -> None:
        """Have the judge asked about the criteria of the buffer that it was not asked about yet."""
        for one in entries:
            column = self._trials.get((one.key, digest(one.criterion.question)))
            if column is not None:
                self._values.setdefault(one.key, column)
        new = [one.criterion for one in entries if one.key not in self._values]
        if not new:
            return
        plain = [one.model_copy(update={"weight": 1.0, "group": (), "required": False}) for one in new]
        self._submit(f"{step}", Rubric(criteria=tuple(plain)), self._data.search)
        for criterion in new:
            self._values[criterion.key] = self._trials[_trial_key(criterion)]

    def _submit(self, what: str, rubric: Rubric, rows: NDArray[np.bool_]) -> int:
        """Have a rubric scored on these rows [N] by a job, or by the one that was submitted for it; return its id.

        Raises:
            BudgetExhaustedError: The evolution's budget is used up.
            InvalidError: The job was cancelled.
            UnavailableError: Most verdicts of the job failed.
        """
        key, left = evolutions.job_key(self._id, f"{what}-{rubric.digest[:12]}"), self._left()
        with self._db.write() as session:
            known = next((job for job in evolutions.jobs_of(session, self._id) if job.key == key), None)
            if known is not None and known.exhausted:
                jobs.retry(session, known.id, budget=None if left is None else known.spent + left)
            if known is None:
                rubric_id = self._store(session, rubric)
                items = [(id_, rubric_id) for id_ in self._data.completions[rows].tolist()]
                name = f"evolution {self._id}: {what}"
                options: dict[str, Any] = {"key": key, "name": name, "budget": left, "allow_drafts": True}
                known = jobs.submit(session, judge_id=self._judge_id, items=items, **options)
            job_id = known.id
        self._score_job(job_id)
        again = f"rubricsvc evolve start --resume {self._id}"
        with self._db.read() as session:
            job, progress = jobs.get(session, job_id), jobs.progress(session, job_id)
            if job.exhausted:
                raise self._exhausted()
            if job.status == CANCELLED:
                message = f"job {job_id} of evolution {self._id} was cancelled"
                raise InvalidError(message, hint=f"rubricsvc jobs retry {job_id}, then {again}")
            if progress.failed_verdicts > progress.verdicts:
                message = f"job {job_id} of evolution {self._id}: {progress.failed_verdicts} verdicts failed"
                raise UnavailableError(message, hint=f"rubricsvc jobs retry {job_id} --wait, then {again}")
        self._read(job_id)
        return job_id

    def _read(self, job_id: int) -> None:
        """Take over the verdicts of a job."""
        with self._db.read() as session:
            for matrix in read_matrices(session, Selection(self._judge_id, job_id)):
                columns = matrix.aligned(self._data.completions).T
                for criterion, column in zip(matrix.rubric.criteria, columns, strict=True):
                    self._trials[_trial_key(criterion)] = column

    def _left(self) -> float | None:
        """Return the US dollars that are left; None without a limit."""
        with self._db.read() as session:
            row = evolutions.get(session, self._id)
            budget = row.request.budget if row.request is not None else None
            if budget is None:
                return None
            spent = sum(job.spent for job in evolutions.jobs_of(session, self._id))
            left = budget - spent - evolutions.proposal_costs(session, evolution_id=self._id)
        if left <= 0:
            raise self._exhausted()
        return left

    def _exhausted(self) -> BudgetExhaustedError:
        again = f"rubricsvc evolve start --resume {self._id} --budget DOLLARS"
        return BudgetExhaustedError(f"evolution {self._id} has used its budget", hint=f"continue: {again}")

    def _store(self, session: Session, rubric: Rubric) -> int:
        """Store a candidate as a draft that work without a rubric's name never uses; return its id."""
        name = f"evolution-{self._id}"
        options: dict[str, Any] = {"prompt_id": self._prompt_id, "origin": EVOLVED, "added_by": name}
        return rubrics.add(session, rubric, name=name, state=DRAFT, **options).id

    def _finish(self, best: Rubric, rubric_id: int, entries: Sequence[BufferedCriterion]) -> None:
        """Score the best rubric as a whole on held-out prompts, and store it as a draft of the start's name."""
        start, after = reward_vector(self._start, self._data.values), rewards_of(best, self._values)
        new = best.by_key.keys() - self._start.by_key.keys()
        if new or (self._together and len(best.criteria) < len(self._start.criteria)):
            job_id = self._submit("held-out", best, self._data.held_out)
            with self._db.read() as session:
                (matrix,) = read_matrices(session, Selection(self._judge_id, job_id))
            held_out = reward_vector(best, matrix.aligned(self._data.completions))
            after = np.where(self._data.held_out, held_out, after)
        held_out_labels = self._data.labels.of_rows(self._data.held_out)
        result = held_out_result(self._objective, self._labels, held_out_labels, start, after)
        with self._db.write() as session:
            row = evolutions.begin_step(session, self._id, self._request.rounds, VersionUse(rubric_id))
            if row.round is None:
                target = None
                if best != self._start:  # a branch where somebody has edited the start since
                    given = rubrics.get(session, self._start_id)
                    target = add_derived(session, best, given, origin=EVOLVED, force=True).row.id
                evolutions.end_round(session, row, entries, EvolutionRound(score=self._score(best)), target)
                evolutions.finish(session, self._id, result)


def _trial_key(criterion: Criterion) -> tuple[str, str]:
    return criterion.key, digest(criterion.question)
