"""Rubrics that evolve while a policy trains: the version that a step uses, the buffers, and the versions of rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rubricsvc.core.criterion_buffer import BufferedCriterion, EvolutionRound, frozen_entries
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import EVOLVED
from rubricsvc.errors import ConflictError, InvalidError
from rubricsvc.services.editing import Edit, add_version
from rubricsvc.store import criterion_buffers as buffers
from rubricsvc.store import generation, prompts, rubrics
from rubricsvc.store.criterion_buffers import BufferKey, VersionUse

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.states import ApprovalPolicy
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import RubricRow

Approve = Literal["auto", "human"]
Authored = tuple[Prompt, Rubric]
"""A prompt with its authored rubric."""


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


class CriterionBuffers:
    """The buffers of one training run.

    What a step used and what its round did is recorded once: a step that is repeated after a resume finds it, and so
    uses the same versions.

    Args:
        db: The database.
        run: Name of the run, which no other run has.
        approve: Whether versions are approved when they are written, or by a person.
        policy: Which rubrics are drafts until a person approves them.

    Raises:
        InvalidError: All rubrics need the approval of a person, and ``approve`` is ``auto``.
    """

    def __init__(self, db: Database, run: str, approve: Approve, policy: ApprovalPolicy = "generated") -> None:
        if approve == "auto" and policy == "all":
            hint = 'set approve = "human" in [evolve]'
            raise InvalidError(
                "RUBRICSVC_REQUIRE_APPROVAL=all: rubrics are approved by people", hint=hint, path="evolve.approve"
            )
        self.run, self.approve = run, approve
        self._db = db
        self._places: dict[tuple[str, str], BufferKey] = {}
        self._in_use: dict[BufferKey, VersionInUse] = {}

    def begin_step(self, step: int, tasks: Sequence[Authored]) -> list[Rubric]:
        """Return the rubric version that a step (from 0) uses for each task, and record it."""
        with self._db.write() as session:
            places = [self._place(session, *task) for task in tasks]
            for place in dict.fromkeys(places):
                self._in_use[place] = self._begin(session, place, step)
            return [self._in_use[place].rubric for place in places]

    def _begin(self, session: Session, place: BufferKey, step: int) -> VersionInUse:
        known = self._in_use.get(place)
        before = known.use if known else VersionUse(place.base_id)
        name = buffers.lineage(place, rubrics.get(session, place.base_id))
        selected = buffers.newest_selection(session, name, self.run, before.event_id) or before
        row = buffers.begin_step(session, place, step, selected)
        use = VersionUse(row.rubric_id, row.event_id)
        if known is not None and known.use == use:
            return known
        version = rubrics.get(session, use.rubric_id)
        return VersionInUse(use, version.ref, version.value)

    def open(self, step: int, task: Authored) -> PromptBuffer:
        """Return the buffer of a task before the round that follows a step."""
        with self._db.write() as session:
            place = self._place(session, *task)
            row = buffers.step(session, place, step)
            return PromptBuffer(
                buffers.entries(session, place) or frozen_entries(task[1]),
                generation.labelled(session, place.prompt_id),
                row.round_value if row is not None else None,
            )

    def end_round(
        self, step: int, task: Authored, entries: Sequence[BufferedCriterion], rubric: Rubric, done: EvolutionRound
    ) -> None:
        """Record a round in one transaction: the buffer, the rubric version if it is another one, and what was done.

        A round that is recorded already stays.
        """
        with self._db.write() as session:
            place = self._place(session, *task)
            row = buffers.step(session, place, step)
            if row is None or row.round is not None:
                return
            buffers.write_entries(session, place, entries)
            base = rubrics.get(session, place.base_id)
            parent = buffers.newest_target(session, place) or base
            target = None
            if rubric.digest != parent.digest:
                target = self._version(session, place, base, parent, rubric)
                rubrics.record_event(session, target, target.state, by=self.run, comment=_comment(step, done))
            buffers.end_round(session, row, done, target.id if target is not None else None)

    def _version(
        self, session: Session, place: BufferKey, base: RubricRow, parent: RubricRow, rubric: Rubric
    ) -> RubricRow:
        # forced: the newest version that a person has not seen yet has the same parent, and this one replaces it
        edit = Edit(self.run, parent.id, force=True, draft=self.approve == "human", policy="none")
        name = buffers.lineage(place, base)
        return add_version(session, rubric, edit, name=name, prompt_id=place.prompt_id, origin=EVOLVED).row

    def spent(self) -> float:
        """Return the US dollars that the proposals of this run have cost."""
        with self._db.read() as session:
            return buffers.spent(session, self.run)

    def waiting(self) -> list[str]:
        """Return the versions of this run that wait for a person's approval, as name@version."""
        with self._db.read() as session:
            return [row.ref for row in buffers.waiting(session, self.run, rubrics.NOT_APPROVED)]

    def state(self) -> dict[str, Any]:
        """Return the versions in use, as plain data for a checkpoint."""
        in_use = [
            {
                "prompt_id": place.prompt_id,
                "base_id": place.base_id,
                "rubric": version.ref,
                "digest": version.rubric.digest,
                **version.use._asdict(),
            }
            for place, version in sorted(self._in_use.items())
        ]
        return {"run": self.run, "in_use": in_use}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue with the versions of a checkpoint.

        Raises:
            ConflictError: The database does not have them.
        """
        self.run = state["run"]
        self._places.clear()
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
            place = BufferKey(self.run, one["prompt_id"], one["base_id"])
            self._in_use[place] = VersionInUse(VersionUse(one["rubric_id"], one["event_id"]), row.ref, row.value)

    def _place(self, session: Session, prompt: Prompt, base: Rubric) -> BufferKey:
        """Return the place of a task; the prompt and the rubric are stored if they are not yet."""
        key = prompt.digest, base.digest
        if key not in self._places:
            prompt_id = prompts.add(session, prompt).id
            row = buffers.used_base(session, self.run, prompt_id, base.digest)
            row = row or buffers.authored(session, base.digest, prompt_id)
            if row is None:
                edit = Edit(self.run, policy="none")
                row = add_version(session, base, edit, name=f"rubric-{base.digest[:12]}").row
            self._places[key] = BufferKey(self.run, prompt_id, row.id)
        return self._places[key]


def _comment(step: int, done: EvolutionRound) -> str:
    """Return what a round changed: ``evolved after step 12: added evolved-3; retired evolved-1``."""
    parts = {"added": done.activated, "added again": done.reactivated, "retired": done.retired}
    changed = "; ".join(f"{what} {', '.join(keys)}" for what, keys in parts.items() if keys)
    return f"evolved after step {step + 1}: {changed or 'as the buffer is now'}"
