"""The search of an evolution: generations of children on islands, successive halving, and the held-out comparison.

Everything is stored as it happens, and child ``n`` depends only on the seed, on ``n`` and on the generations before: a
process that continues draws the same children, and asks no model again. Jobs score what has no stored verdict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rubricsvc.core.evolution import Candidate, EvolutionStatus, Objective, Operator, ProposalRequest
from rubricsvc.errors import ConflictError
from rubricsvc.services.evolution_columns import VerdictColumns
from rubricsvc.services.evolution_data import Labelled, read_labelled
from rubricsvc.services.evolution_jobs import BudgetExhaustedError, CandidateJobs
from rubricsvc.services.evolution_operators import available_operators
from rubricsvc.services.evolution_proposals import SHARE, Proposals, Proposer
from rubricsvc.stats import OnProgress
from rubricsvc.stats.evolution.fitting import fitted_weights
from rubricsvc.stats.evolution.held_out import held_out_result
from rubricsvc.stats.evolution.objectives import rungs, score_of, unit_values
from rubricsvc.stats.evolution.operators import Material, mutate
from rubricsvc.stats.evolution.selection import Parent, best_first, survivors, tournament
from rubricsvc.store import evolutions

if TYPE_CHECKING:
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import CandidateRow

MIGRATION = 4
"""Generations after which an island takes parents of its neighbour once."""
ATTEMPTS = 10
"""Draws of a child that is new."""


@dataclass
class Member:
    """A candidate as it is stored; ``rewards`` are those of the search part, once they are used."""

    number: int
    generation: int
    island: int
    candidate: Candidate | None
    operator: str
    rung: int = -1
    whole: bool = False
    score: float | None = None
    rewards: Any = field(default=None, repr=False)

    @classmethod
    def of(cls, row: CandidateRow) -> Member:
        """Return the member of a row."""
        value = row.value if row.content is not None else None
        names = ("number", "generation", "island", "operator", "rung", "whole", "score")
        return cls(candidate=value, **{name: getattr(row, name) for name in names})


class EvolutionSearch:
    """Works on one evolution until it is finished.

    ``score_job`` waits until a job is finished; ``proposer`` is used by the operators that need a model.
    """

    def __init__(
        self,
        db: Database,
        evolution_id: int,
        score_job: Callable[[int], None],
        *,
        proposer: Proposer | None = None,
        on_progress: OnProgress = lambda done, total, note: None,
    ) -> None:
        self._db, self._id = db, evolution_id
        self._on_progress = on_progress
        with db.read() as session:
            self._row = evolutions.get(session, evolution_id)
            self._settings = self._row.settings_value
            self._labelled = self._read(session)
            rows = evolutions.candidates(session, evolution_id)
        self._start = Candidate(rubric=self._row.rubric.value)
        self._columns = VerdictColumns(self._row.judge.value, self._labelled.completions)
        self._columns.add(self._start, self._labelled.completions, self._labelled.values)
        self._jobs = CandidateJobs(db, self._row, self._columns, self._labelled.completions, score_job)
        self._members = {row.number: Member.of(row) for row in rows}
        self._proposals = Proposals(db, evolution_id, proposer, self._labelled, self._columns) if proposer else None
        self._pools: dict[tuple[int, int | None], list[Parent]] = {}
        self._known = {one.candidate for one in self._members.values() if one.candidate is not None}
        self._fence = 0

    def run(self, *, budget: float | None = None) -> None:
        """Search, compare the best candidate with the start on held-out prompts, and end the evolution.

        Raises:
            ConflictError: Labels or verdicts have changed since it was started, or another process has continued it.
            BudgetExhaustedError: The budget is used up; with a larger ``budget`` it continues.
        """
        with self._db.write() as session:
            self._fence = evolutions.take(session, self._id, budget=budget)
        self._jobs.fence = self._fence
        try:
            self._search()
        except BaseException as error:
            status: EvolutionStatus = "budget_exhausted" if isinstance(error, BudgetExhaustedError) else "stopped"
            with suppress(ConflictError), self._db.write() as session:  # another process may have continued it
                evolutions.finish(session, self._id, self._fence, status)
            raise

    def _search(self) -> None:
        settings, each = self._settings, self._settings.islands * self._settings.children
        total = settings.generations * each
        if 0 not in self._members:
            self._add(0, self._start, generation=0, island=0, operator="start", parents=())
        self._score([self._members[0]], len(self._rungs) - 1, "start")
        for generation in range(1, settings.generations + 1):
            first = 1 + (generation - 1) * each
            requests = []
            for number in range(first, first + each):
                self._on_progress(number, total, f"generation {generation}: {self._note()}")
                request = self._add_child(number, generation, (number - first) % settings.islands)
                requests += [request] if request is not None else []
            self._propose(requests)
            children = [self._members[n] for n in range(first, first + each) if n in self._members]
            self._halve(children, generation)
        self._finish()
        self._on_progress(total, total, self._note())

    def _read(self, session: Any) -> Labelled:
        settings, row = self._settings, self._row
        labelled = read_labelled(
            session,
            row.rubric,
            row.judge,
            seed=settings.seed,
            held_out=settings.held_out,
            job_id=settings.job_id,
            held_out_job_id=settings.held_out_job_id,
        )
        if labelled.digest != row.data_digest:
            raise ConflictError(
                f"what is labelled or scored has changed since evolution {self._id} was started",
                hint="start another one: the same command without --resume",
            )
        return labelled

    @cached_property
    def _rungs(self) -> list[Any]:
        return list(rungs(self._objective, self._labelled.target, self._labelled.search, self._settings.seed))

    @property
    def _objective(self) -> Objective:
        return self._settings.objective

    def _note(self) -> str:
        whole = [one for one in self._members.values() if one.whole and one.score is not None]
        best = max((one.score for one in whole if one.score is not None), default=None)
        return "" if best is None else f"best {best:.4f}, start {self._members[0].score:.4f}"

    def _add(self, number: int, candidate: Candidate | None, *, reason: str | None = None, **fields: Any) -> None:
        with self._db.write() as session:
            evolutions.check(session, self._id, self._fence)
            row = evolutions.add_candidate(session, self._id, number, candidate, reason=reason, **fields)
        self._members[number] = Member.of(row)
        self._known |= {candidate} if candidate is not None else set()

    def _pool(self, generation: int, island: int | None = None) -> list[Parent]:
        """Return the candidates of earlier generations that may have children, of one island; the start is on all."""
        if (generation, island) not in self._pools:
            self._pools = {key: pool for key, pool in self._pools.items() if key[0] == generation}
            self._pools[generation, island] = self._parents(generation, island)
        return self._pools[generation, island]

    def _parents(self, generation: int, island: int | None) -> list[Parent]:
        return [
            Parent(one.number, one.candidate, one.score, self._rewards(one))
            for one in self._members.values()
            if one.whole and one.score is not None and one.candidate is not None and one.generation < generation
            if island is None or one.island == island or one.number == 0
        ]

    def _rewards(self, one: Member) -> Any:
        if one.rewards is None and one.candidate is not None:
            one.rewards = self._columns.outcome(one.candidate).rewards[self._labelled.search]
        return one.rewards

    def _add_child(
        self, number: int, generation: int, island: int
    ) -> tuple[ProposalRequest, Parent, dict[str, Any]] | None:
        """Add the child of this number, unless it is stored or no new one is found; or return what a model is asked."""
        if number in self._members:
            return None
        random = np.random.default_rng([self._settings.seed, 2, number])
        home = (island + 1) % self._settings.islands if generation % MIGRATION == 0 else island
        pool, everyone = self._pool(generation, home), self._pool(generation)
        place: dict[str, Any] = {"generation": generation, "island": island}
        operators = self._operators
        if self._proposals is not None and (not operators or random.random() < SHARE):
            parent = tournament(random, pool)
            return self._proposals.request(random, number, parent, self._objective), parent, place
        for _ in range(ATTEMPTS):
            parent, other = tournament(random, pool), tournament(random, everyone)
            operator = operators[int(random.integers(len(operators)))]
            material = Material(self._start, other.candidate, self._settings.templates, self._fit)
            child = mutate(operator, random, parent.candidate, material)
            if child is not None and child not in self._known and not self._same(parent.candidate, child):
                parents = [parent.number, *([other.number] if operator == "cross" else [])]
                self._add(number, child, operator=operator, parents=parents, **place)
                break
        return None

    def _same(self, parent: Candidate, child: Candidate) -> bool:
        """Whether the child decides every unit of the search part as its parent does; False if that must be asked."""
        if any(self._columns.to_ask([child], self._labelled.search)):
            return False
        part = self._labelled.target.of_rows(self._labelled.search)
        before, after = (unit_values(self._objective, part, self._columns.outcome(one)) for one in (parent, child))
        return bool(np.allclose(before, after, rtol=0.0, atol=1e-9, equal_nan=True))

    def _propose(self, requests: Sequence[tuple[ProposalRequest, Parent, dict[str, Any]]]) -> None:
        """Ask for the children of these requests together, and add them in order."""
        if not requests or self._proposals is None:
            return
        proposals = self._proposals.ask([request for request, *_ in requests])
        for (request, parent, place), proposal in zip(requests, proposals, strict=True):
            child, reason = None, proposal if isinstance(proposal, str) else None
            if not isinstance(proposal, str):
                child = parent.candidate.model_copy(update={"rubric": proposal})
                if child in self._known:
                    child, reason = None, "the proposal is a known candidate"
            fields = {"operator": request.operator, "parents": [parent.number], **place}
            self._add(request.sample, child, reason=reason, **fields)

    @cached_property
    def _operators(self) -> Sequence[Operator]:
        return available_operators(self._settings, self._start, self._row.judge.value)

    def _fit(self, random: np.random.Generator, candidate: Candidate) -> Any:
        target = self._labelled.target.of_rows(self._labelled.search)
        return fitted_weights(random, candidate.rubric, self._columns.values(candidate), target, self._objective)

    def _halve(self, children: Sequence[Member], generation: int) -> None:
        """Score children on growing parts; on each, the better half of an island goes on."""
        left = [one for one in children if one.candidate is not None]
        for rung in range(len(self._rungs)):
            self._score(left, rung, f"g{generation}-r{rung}")
            by_island: dict[int, list[tuple[int, float]]] = defaultdict(list)
            for one in left:
                score = self._score_on(one, rung)
                if score is not None:
                    by_island[one.island].append((one.number, score))
            going_on = {number for scored in by_island.values() for number in survivors(scored)}
            left = [one for one in left if one.number in going_on]

    def _score_on(self, one: Member, rung: int) -> float | None:
        if one.candidate is None or one.rung < rung:
            return None
        if one.rung == rung:
            return one.score
        return self._measured(one.candidate, rung)

    def _measured(self, candidate: Candidate, rung: int) -> float | None:
        part = self._labelled.target.of_rows(self._rungs[rung])
        return score_of(self._objective, part, self._columns.outcome(candidate))

    def _score(self, members: Iterable[Member], rung: int, step: str) -> None:
        """Score those members on this part that were not scored on it yet."""
        todo = [one for one in members if one.candidate is not None and one.rung < rung]
        self._jobs.judge([one.candidate for one in todo if one.candidate], self._rungs[rung], step)
        whole = rung == len(self._rungs) - 1
        with self._db.write() as session:
            evolutions.check(session, self._id, self._fence)
            for one in todo:
                assert one.candidate is not None  # noqa: S101
                score = self._measured(one.candidate, rung)
                reason = None if score is not None else "too few of its verdicts have a value"
                values: dict[str, Any] = {"rung": rung, "whole": whole, "score": score}
                evolutions.record(session, self._id, one.number, reason=reason, **values)
                one.rung, one.whole, one.score = rung, whole, score

    def _finish(self) -> None:
        best = best_first(self._pool(self._settings.generations + 1))[0]
        self._jobs.judge([best.candidate], self._labelled.held_out, "held-out")
        target = self._labelled.target
        search, held_out = (target.of_rows(mask) for mask in (self._labelled.search, self._labelled.held_out))
        outcomes = (self._columns.outcome(self._start), self._columns.outcome(best.candidate))
        result = held_out_result(self._objective, search, held_out, *outcomes)
        with self._db.write() as session:
            evolutions.finish(session, self._id, self._fence, "completed", best=best.number, result=result)
