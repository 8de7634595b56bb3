"""`Evolutions`: rubrics that labels or the rollouts of a training run improve, and the rounds in which they do.

`hold_rounds` proposes criteria, has them measured by a `Source`, and records the version that was decided on. Sources
are people's labels (`workers.evolution`), and between the steps of a run its rollouts (`trainer.evolution`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rubricsvc.core.evolution import (
    USED,
    BufferedCriterion,
    EvolutionReport,
    EvolutionRound,
    EvolutionStep,
    EvolutionSummary,
    RetirementReason,
)
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import EVOLVED
from rubricsvc.errors import ConflictError, InvalidError
from rubricsvc.queries import EvolutionFilters
from rubricsvc.schemas import Page
from rubricsvc.schemas.base import takes
from rubricsvc.services.versions import Edit, add_version
from rubricsvc.store import completions, evolutions, rubrics
from rubricsvc.store.session import by_id, get_or_add, page_of
from rubricsvc.store.tables import EvolutionRow, RubricRow

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.states import ApprovalPolicy
    from rubricsvc.store.session import Database


@dataclass(eq=False)
class Evolutions:
    """Evolutions, by id."""

    db: Database

    @takes(EvolutionFilters)
    def page(self, query: EvolutionFilters) -> Page[EvolutionSummary]:
        """List evolutions, oldest first, with how far each of them is."""
        with self.db.read() as session:
            prompt_id = completions.get_prompt(session, query.prompt).id if query.prompt is not None else None
            rows = page_of(session, EvolutionRow, query.after, query.limit + 1, run=query.run, prompt_id=prompt_id)
            return Page.cut([EvolutionSummary(**_summary(session, row)) for row in rows], query.limit)

    def get(self, evolution_id: int) -> EvolutionReport:
        """Get an evolution: the criteria of its buffer, its rounds, and what it gains on held-out prompts."""
        with self.db.read() as session:
            row = evolutions.get(session, evolution_id)
            steps = [one for one in evolutions.steps(session, row.id) if one.round is not None]
            ids = {id_ for one in steps for id_ in (one.rubric_id, one.target_id) if id_}
            used = {id_: version.ref for id_, version in by_id(session, RubricRow, ids).items()} | {None: None}
            rounds = [
                {"step": one.step, "used": used[one.rubric_id], "wrote": used[one.target_id], "round": one.round}
                for one in steps
            ]
            return EvolutionReport(
                **_summary(session, row),
                settings=row.request,
                entries=tuple(evolutions.newest_entries(session, row)),
                rounds=tuple(map(EvolutionStep.model_validate, rounds)),
                jobs=tuple(job.id for job in evolutions.jobs_of(session, row.id)),
            )


def _summary(session: Session, row: EvolutionRow) -> dict[str, Any]:
    """Return the fields of a summary."""
    steps, newest = evolutions.steps(session, row.id), evolutions.newest_target(session, row.id)
    names = ("id", "created_at", "finished_at", "run", "prompt_id", "held_out")
    jobs = evolutions.jobs_of(session, row.id) if row.run is None else []
    held = steps if row.run is not None else [one for one in steps if one.round_value and one.round_value.decided]
    return {name: getattr(row, name) for name in names} | {
        "rubric": row.rubric.ref,
        "newest": newest.ref if newest is not None else None,
        "steps": len(held) - (row.run is None and row.finished_at is not None),
        "planned": row.request.rounds if row.request is not None else None,
        "cost": evolutions.proposal_costs(session, evolution_id=row.id) + sum(job.spent for job in jobs),
    }


Approve = Literal["auto", "human"]
Authored = tuple[Prompt, Rubric]
"""A prompt with its authored rubric."""


@dataclass
class Round:
    """The round of the evolution ``id`` of the rubric ``base`` that follows a ``step``, which ``used`` a version.

    A source adds to the buffer (``entries``) what is proposed, replaces entries by what is measured, and says which are
    ``untested``, by key, since their trial failed.
    """

    id: int
    step: int
    base: Rubric
    used: Rubric
    entries: list[BufferedCriterion]
    done: EvolutionRound = field(default_factory=EvolutionRound)
    untested: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    score: float | None = None


class Source(Protocol):
    """What criteria are proposed from and measured on: people's labels, or the rollouts of a run."""

    def propose(self, rounds: Sequence[Round]) -> None:
        """Add proposed criteria to the buffer of each round, and set its ``done``, or add a failure."""

    def measure(self, rounds: Sequence[Round]) -> None:
        """Measure what is due in each round, and replace its entries."""

    def decide(self, one: Round) -> tuple[Mapping[str, RetirementReason | None], Rubric]:
        """Return which criteria are kept (None) or why they are retired, by key, and the rubric with those in use."""


def hold_rounds(
    db: Database, step: int, ids: Sequence[int], source: Source, *, approve: Approve = "human"
) -> list[Round]:
    """Hold the round of each evolution that follows a step: propose, measure, decide, and record each of them.

    What another process has recorded is taken over: proposals are not asked for again, and a round that is decided
    stays. A version is written in one transaction with its round, as a draft where a person approves.

    Raises:
        ConflictError: Another process has held the round of an evolution on labels meanwhile.
    """
    rounds, fresh = list[Round](), list[Round]()
    with db.write() as session:
        for row in (evolutions.get(session, id_) for id_ in ids):
            recorded = evolutions.begin_step(session, row, step)
            used, entries = rubrics.get(session, recorded.rubric_id).value, evolutions.newest_entries(session, row)
            rounds.append(Round(row.id, step, row.rubric.value, used, entries))
            if recorded.round_value is None:
                fresh.append(rounds[-1])
            else:
                rounds[-1].done = recorded.round_value
    source.propose(fresh)
    with db.write() as session:
        for one in fresh:
            recorded = evolutions.begin_step(session, evolutions.get(session, one.id), step)
            if recorded.round is None:
                evolutions.write_round(session, recorded, one.entries, one.done)
    under_way = [one for one in rounds if not one.done.decided]
    source.measure(under_way)
    for one in under_way:
        moved: dict[str, tuple[str, ...]] = {}
        decided, version = source.decide(one)
        for place, entry in enumerate(one.entries):
            if entry.key in decided:
                reason = decided[entry.key]
                state = "retired" if reason else "frozen" if entry.key in one.base.by_key else "active"
                change = "retired" if reason else "activated"
                if bool(reason) == (entry.state in USED):
                    moved[change] = (*moved.get(change, ()), entry.key)
                one.entries[place] = entry.model_copy(update={"state": state, "reason": reason})
        failure = "; ".join(filter(None, [one.done.failure, *one.failures])) or None
        active = sum(entry.state == "active" for entry in one.entries)
        fields = {"untested": tuple(one.untested), "score": one.score, "failure": failure, "active": active}
        one.done = one.done.model_copy(update={"decided": True, **moved, **fields})
        with db.write() as session:
            row = evolutions.get(session, one.id)
            recorded = evolutions.begin_step(session, row, step)
            if (known := recorded.round_value) is not None and known.decided:
                if row.run is None:
                    raise ConflictError(f"evolution {one.id} is continued by another process", hint="wait for it")
                continue
            parent, target_id = evolutions.newest_target(session, row.id) or row.rubric, None
            if version.digest != parent.digest:
                # forced: the newest version that a person has not seen yet has the same parent, and this replaces it
                name, prompt_id = evolutions.lineage(row), row.prompt_id or row.rubric.prompt_id
                edit = Edit(row.run or name, parent.id, force=True, draft=approve == "human", policy="none")
                target = add_version(session, version, edit, name=name, prompt_id=prompt_id, origin=EVOLVED).row
                changed = "; ".join(f"{what} {', '.join(keys)}" for what, keys in moved.items())
                comment = f"evolved after step {step + 1}: {changed or 'as the buffer is now'}"
                rubrics.record_event(session, target, target.state, by=edit.by or name, comment=comment)
                target_id = target.id
            evolutions.write_round(session, recorded, one.entries, one.done, target_id)
    return rounds


class RunEvolutions:
    """The evolutions of one training run, one for each prompt; ``run`` is its name, which no other run has.

    What a step used and what its round did is recorded once: a step that is repeated after a resume finds it, and so
    uses the same versions. They are approved when they are written, or by a person (``approve``); ``approval`` says
    which rubrics must be.

    Raises:
        InvalidError: All rubrics need the approval of a person, and ``approve`` is ``auto``.
    """

    def __init__(self, db: Database, run: str, approve: Approve, approval: ApprovalPolicy = "generated") -> None:
        if approve == "auto" and approval == "all":
            message, hint = "RUBRICSVC_REQUIRE_APPROVAL=all: rubrics are approved by people", 'set approve = "human"'
            raise InvalidError(message, hint=f"{hint} in [evolve]", path="evolve.approve")
        self.run, self.approve, self.db = run, approve, db
        self._ids: dict[tuple[str, str], int] = {}

    def begin_step(self, step: int, tasks: Sequence[Authored]) -> list[Rubric]:
        """Return the rubric version that a step (from 0) uses for each task, and record it.

        Raises:
            ConflictError: The database does not know the earlier steps of the run.
        """
        with self.db.read() as session:
            if step and not page_of(session, EvolutionRow, 0, 1, run=self.run):
                message = f"the database does not have the rubric versions that run {self.run} has used"
                raise ConflictError(message, hint="use the database of the run: set RUBRICSVC_DATABASE_URL")
        ids, used = self.ids(tasks), dict[int, int]()
        with self.db.write() as session:
            for id_ in dict.fromkeys(ids):
                used[id_] = evolutions.begin_step(session, evolutions.get(session, id_), step).rubric_id
            rows = by_id(session, RubricRow, used.values())
            return [rows[used[id_]].value for id_ in ids]

    def ids(self, tasks: Sequence[Authored]) -> list[int]:
        """Return the evolution of each task; the prompt and the rubric are stored if they are not yet."""
        keys = [(prompt.digest, base.digest) for prompt, base in tasks]
        with self.db.write() as session:
            for key, (prompt, base) in zip(keys, tasks, strict=True):
                if key not in self._ids:
                    prompt_id = completions.add_prompt(session, prompt).id
                    row = evolutions.authored(session, base.digest, prompt_id)
                    if row is None:
                        edit, name = Edit(self.run, policy="none"), f"rubric-{base.digest[:12]}"
                        row = add_version(session, base, edit, name=name).row
                    columns = {"rubric_id": row.id, "run": self.run, "prompt_id": prompt_id}
                    unique = {"key": digest("evolution", self.run, prompt_id, base.digest)}
                    self._ids[key] = get_or_add(session, EvolutionRow, unique, **columns)[0].id
        return [self._ids[key] for key in keys]

    def spent(self) -> float:
        """Return the US dollars that the proposals of this run have cost."""
        with self.db.read() as session:
            return evolutions.proposal_costs(session, run=self.run)
