"""`Evolutions`: rubrics that labels or the rollouts of a training run improve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rubricsvc.core.evolution import (
    BufferedCriterion,
    EvolutionReport,
    EvolutionRequest,
    EvolutionRound,
    EvolutionStep,
    EvolutionSummary,
    frozen_entries,
)
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import EVOLVED
from rubricsvc.errors import ConflictError, InvalidError, needs_extra
from rubricsvc.schemas import Page
from rubricsvc.schemas.evolutions import EvolutionFilters
from rubricsvc.schemas.methods import takes
from rubricsvc.services.analysing import scope_of
from rubricsvc.services.editing import Edit, add_version
from rubricsvc.stats import OnProgress
from rubricsvc.store import budgets, evolutions, generation, judges, prompts, rubrics
from rubricsvc.store.evolutions import VersionUse

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.states import ApprovalPolicy
    from rubricsvc.services.label_search import Propose
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import EvolutionRow

Approve = Literal["auto", "human"]
Authored = tuple[Prompt, Rubric]
"""A prompt with its authored rubric."""


class Evolutions:
    """Evolutions, by id."""

    def __init__(self, db: Database) -> None:
        self.db = db

    @takes(EvolutionFilters)
    def page(self, query: EvolutionFilters) -> Page[EvolutionSummary]:
        """List evolutions, oldest first, with how far each of them is."""
        with self.db.read() as session:
            options: dict[str, Any] = {"run": query.run}
            if query.prompt is not None:
                options["prompt_id"] = prompts.get(session, query.prompt).id
            rows = evolutions.page(session, after=query.after, limit=query.limit + 1, **options)
            return Page.cut([EvolutionSummary(**_summary(session, row)) for row in rows], query.limit)

    def get(self, evolution_id: int) -> EvolutionReport:
        """Get an evolution: the criteria of its buffer, its rounds, and what it gains on held-out prompts."""
        with self.db.read() as session:
            row = evolutions.get(session, evolution_id)
            steps = [one for one in evolutions.steps(session, row.id) if one.round is not None]
            ids = {id_ for one in steps for id_ in (one.rubric_id, one.target_id) if id_}
            refs = {id_: version.ref for id_, version in rubrics.many(session, ids).items()}
            rounds = [
                EvolutionStep(
                    step=one.step,
                    used=refs[one.rubric_id],
                    wrote=refs[one.target_id] if one.target_id else None,
                    round=one.round_value,
                )
                for one in steps
            ]
            return EvolutionReport(
                **_summary(session, row),
                settings=row.request,
                entries=tuple(steps[-1].buffer if steps else frozen_entries(row.rubric.value)),
                rounds=tuple(rounds),
                jobs=tuple(job.id for job in evolutions.jobs_of(session, row.id)),
            )

    @takes(EvolutionRequest)
    def start(self, rubric: int | str, request: EvolutionRequest) -> EvolutionReport:
        """Add the evolution of a rubric version on labels, or find that with the same settings, labels and verdicts.

        A budget replaces that of the one that is found.

        Raises:
            NotFoundError: There is no such rubric, job or judge.
            InvalidError: The start has no verdicts, there are too few labels or labels of one class, the formula takes
                no further criteria, or a price is not known.
            UnavailableError: The extra ``judging`` is not installed.
        """
        with needs_extra("judging"):
            from rubricsvc.services.label_search import read_labelled
        with self.db.write() as session:
            row = rubrics.get(session, rubric, allow_drafts=True)
            judge = scope_of(session, row.id, request.job_id, request.judge).judge
            found = read_labelled(session, row, judge, request)
            objective = found.objective(request.objective)
            if request.proposer is not None:
                proposer = judges.get(session, request.proposer).value
                if not proposer.model:
                    message = f"judge {proposer.name!r} ({proposer.mode}) has no model of its own"
                    raise InvalidError(message, hint="name one of its members", path="proposer")
                for one in (proposer, judge.value):
                    budgets.check(one, request.budget)
            settings = request.model_copy(update={"objective": objective, "judge": judge.name})
            named = settings.model_copy(update={"budget": None})
            key = digest("evolution", row.id, judge.id, named, found.digest)
            columns = {"rubric_id": row.id, "judge_id": judge.id, "data_digest": found.digest}
            added = evolutions.add(session, key, settings=settings.model_dump(mode="json"), **columns)
            evolution_id = added.id
        return self._with_budget(evolution_id, request.budget)

    def _with_budget(self, evolution_id: int, budget: float | None) -> EvolutionReport:
        with self.db.write() as session:
            row = evolutions.get(session, evolution_id)
            if budget is not None and row.settings is not None:
                row.settings = row.settings | {"budget": budget}
        return self.get(evolution_id)

    def search(
        self,
        evolution_id: int,
        score_job: Callable[[int], None],
        propose: Propose | None = None,
        *,
        budget: float | None = None,
        on_progress: OnProgress = lambda done, total, note: None,
    ) -> EvolutionReport:
        """Hold the rounds of an evolution on labels that are not recorded yet, and end it.

        Args:
            evolution_id: The evolution.
            score_job: Waits until a job is finished.
            propose: Asks a model for criteria, where the evolution has a proposer.
            budget: US dollars in place of the earlier limit.
            on_progress: Called with the round, their number and a note.

        Raises:
            ConflictError: Labels or verdicts have changed since it was started, or another process continues it.
            BudgetExhaustedError: The budget is used up; with a larger one it continues.
            UnavailableError: A model cannot be asked.
        """
        with needs_extra("judging"):
            from rubricsvc.services.label_search import LabelSearch
        if self._with_budget(evolution_id, budget).finished_at is None:
            LabelSearch(self.db, evolution_id, score_job, propose, on_progress).run()
        return self.get(evolution_id)


def _summary(session: Session, row: EvolutionRow) -> dict[str, Any]:
    """Return the fields of a summary."""
    steps, newest = evolutions.steps(session, row.id), evolutions.newest_target(session, row.id)
    names = ("id", "created_at", "finished_at", "run", "prompt_id", "held_out")
    jobs = evolutions.jobs_of(session, row.id) if row.run is None else []
    return {name: getattr(row, name) for name in names} | {
        "rubric": row.rubric.ref,
        "newest": newest.ref if newest is not None else None,
        "steps": len(steps) - (row.run is None and row.finished_at is not None),
        "planned": row.request.rounds if row.request is not None else None,
        "cost": evolutions.proposal_costs(session, evolution_id=row.id) + sum(job.spent for job in jobs),
    }


@dataclass(frozen=True)
class VersionInUse:
    """A rubric version, and the review event that decided its use; 0 for the authored one."""

    use: VersionUse
    ref: str
    rubric: Rubric


@dataclass(frozen=True)
class PromptBuffer:
    """The buffer of a prompt before a round.

    Attributes:
        entries: Its criteria, the authored ones first.
        labelled: Completions of the prompt with the mean of people's overall labels.
        done: The round, if it is recorded already: it is not repeated.
    """

    entries: Sequence[BufferedCriterion]
    labelled: Sequence[tuple[Completion, float]]
    done: EvolutionRound | None


class RunEvolutions:
    """The evolutions of one training run, one for each prompt.

    What a step used and what its round did is recorded once: a step that is repeated after a resume finds it, and so
    uses the same versions.

    Args:
        db: The database.
        run: Name of the run, which no other run has.
        approve: Whether versions are approved when they are written, or by a person.
        approval: Which rubrics are drafts until a person approves them.

    Raises:
        InvalidError: All rubrics need the approval of a person, and ``approve`` is ``auto``.
    """

    def __init__(self, db: Database, run: str, approve: Approve, approval: ApprovalPolicy = "generated") -> None:
        if approve == "auto" and approval == "all":
            message, hint = "RUBRICSVC_REQUIRE_APPROVAL=all: rubrics are approved by people", 'set approve = "human"'
            raise InvalidError(message, hint=f"{hint} in [evolve]", path="evolve.approve")
        self.run, self.approve = run, approve
        self._db = db
        self._ids: dict[tuple[str, str], int] = {}
        self._in_use: dict[int, VersionInUse] = {}

    def begin_step(self, step: int, tasks: Sequence[Authored]) -> list[Rubric]:
        """Return the rubric version that a step (from 0) uses for each task, and record it."""
        with self._db.write() as session:
            ids = [self._id_of(session, *task) for task in tasks]
            for id_ in dict.fromkeys(ids):
                self._in_use[id_] = self._begin(session, id_, step)
            return [self._in_use[id_].rubric for id_ in ids]

    def _begin(self, session: Session, id_: int, step: int) -> VersionInUse:
        known, row = self._in_use.get(id_), evolutions.get(session, id_)
        before = known.use if known else VersionUse(row.rubric_id)
        selected = evolutions.newest_selection(session, evolutions.lineage(row), self.run, before.event_id) or before
        recorded = evolutions.begin_step(session, id_, step, selected)
        use = VersionUse(recorded.rubric_id, recorded.event_id)
        if known is not None and known.use == use:
            return known
        version = rubrics.get(session, use.rubric_id)
        return VersionInUse(use, version.ref, version.value)

    def open(self, step: int, task: Authored) -> PromptBuffer:
        """Return the buffer of a task before the round that follows a step."""
        with self._db.write() as session:
            id_ = self._id_of(session, *task)
            row = evolutions.step(session, id_, step)
            prompt_id = evolutions.get(session, id_).prompt_id or 0
            return PromptBuffer(
                evolutions.newest_entries(session, id_) or frozen_entries(task[1]),
                generation.labelled(session, prompt_id),
                row.round_value if row is not None else None,
            )

    def end_round(
        self, step: int, task: Authored, entries: Sequence[BufferedCriterion], rubric: Rubric, done: EvolutionRound
    ) -> None:
        """Record a round in one transaction: the buffer, the rubric version if it is another one, and what was done.

        A round that is recorded already stays.
        """
        with self._db.write() as session:
            row = evolutions.get(session, self._id_of(session, *task))
            recorded = evolutions.step(session, row.id, step)
            if recorded is None or recorded.round is not None:
                return
            parent, target_id = evolutions.newest_target(session, row.id) or row.rubric, None
            if rubric.digest != parent.digest:
                # forced: the newest version that a person has not seen yet has the same parent, and this replaces it
                edit = Edit(self.run, parent.id, force=True, draft=self.approve == "human", policy="none")
                options: dict[str, Any] = {"name": evolutions.lineage(row), "prompt_id": row.prompt_id}
                target = add_version(session, rubric, edit, origin=EVOLVED, **options).row
                changes = {"added": done.activated, "added again": done.reactivated, "retired": done.retired}
                changed = "; ".join(f"{what} {', '.join(keys)}" for what, keys in changes.items() if keys)
                comment = f"evolved after step {step + 1}: {changed or 'as the buffer is now'}"
                rubrics.record_event(session, target, target.state, by=self.run, comment=comment)
                target_id = target.id
            evolutions.end_round(session, recorded, entries, done, target_id)

    def spent(self) -> float:
        """Return the US dollars that the proposals of this run have cost."""
        with self._db.read() as session:
            return evolutions.proposal_costs(session, run=self.run)

    def waiting(self) -> list[str]:
        """Return the versions of this run that wait for a person's approval, as name@version."""
        with self._db.read() as session:
            return [row.ref for row in evolutions.waiting(session, self.run, rubrics.NOT_APPROVED)]

    def state(self) -> dict[str, Any]:
        """Return the versions in use, as plain data for a checkpoint."""
        in_use = [
            {"evolution": id_, "rubric": one.ref, "digest": one.rubric.digest, **one.use._asdict()}
            for id_, one in sorted(self._in_use.items())
        ]
        return {"run": self.run, "in_use": in_use}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue with the versions of a checkpoint.

        Raises:
            ConflictError: The database does not have them.
        """
        self.run = state["run"]
        self._ids.clear()
        self._in_use.clear()
        with self._db.read() as session:
            rows = rubrics.many(session, (one["rubric_id"] for one in state["in_use"]))
        for one in state["in_use"]:
            row = rows.get(one["rubric_id"])
            if row is None or row.digest != one["digest"]:
                raise ConflictError(
                    f"the checkpoint uses {one['rubric']} ({one['digest'][:12]}), which is not in the database",
                    hint="use the database of the run: set RUBRICSVC_DATABASE_URL",
                )
            use = VersionUse(one["rubric_id"], one["event_id"])
            self._in_use[one["evolution"]] = VersionInUse(use, row.ref, row.value)

    def _id_of(self, session: Session, prompt: Prompt, base: Rubric) -> int:
        """Return the evolution of a task; the prompt and the rubric are stored if they are not yet."""
        key = prompt.digest, base.digest
        if key not in self._ids:
            prompt_id = prompts.add(session, prompt).id
            known = evolutions.of_run(session, self.run, prompt_id, base.digest)
            if known is None:
                row = evolutions.authored(session, base.digest, prompt_id)
                if row is None:
                    edit = Edit(self.run, policy="none")
                    row = add_version(session, base, edit, name=f"rubric-{base.digest[:12]}").row
                columns = {"rubric_id": row.id, "run": self.run, "prompt_id": prompt_id}
                known = evolutions.add(session, digest("evolution", self.run, prompt_id, base.digest), **columns)
            self._ids[key] = known.id
        return self._ids[key]
