"""The versions that the steps of a run use, and what a round leaves in the database."""

from __future__ import annotations

from dataclasses import dataclass

from rubricsvc.core.evolution import BufferedCriterion, EvolutionRound, evolved_rubric, frozen_entries
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.services.evolutions import Approve, RunEvolutions
from rubricsvc.services.rubrics import review
from rubricsvc.store import prompts, rubrics
from rubricsvc.store.session import Database
from tests.rows import RUBRIC as BASE

TASK = (Prompt.of("Why?"), BASE)


def entry(number: int, state: str = "active") -> BufferedCriterion:
    criterion = Criterion(key=f"evolved-{number}", text=f"Says reason number {number}.")
    return BufferedCriterion.model_validate({"criterion": criterion, "state": state})


@dataclass
class Run:
    """A run of one prompt."""

    buffers: RunEvolutions
    step: int = -1

    def begin(self) -> Rubric:
        self.step += 1
        (rubric,) = self.buffers.begin_step(self.step, [TASK])
        return rubric

    def end(self, *active: int) -> Rubric:
        entries = [*frozen_entries(BASE), *map(entry, active)]
        rubric = evolved_rubric(BASE, entries, 0.1)
        self.buffers.end_round(self.step, TASK, entries, rubric, EvolutionRound(active=len(active)))
        return rubric


def run(db: Database, approve: Approve = "auto", name: str = "first-0a1b2c3d") -> Run:
    return Run(RunEvolutions(db, name, approve))


def lineage(db: Database, name: str = "why-first-0a1b2c3d") -> list[tuple[str, str, str | None]]:
    with db.read() as session:
        rows = rubrics.of_name(session, name)
        parents = rubrics.many(session, [row.parent_id for row in rows if row.parent_id])
        return [(row.ref, row.state, parents[row.parent_id].ref if row.parent_id else None) for row in rows]


def import_base(db: Database) -> None:
    with db.write() as session:
        rubrics.add(session, BASE, name="why", prompt_id=prompts.add(session, TASK[0]).id)


def test_rounds_write_versions_that_later_steps_use(each_db: Database) -> None:
    import_base(each_db)
    one = run(each_db)
    assert one.begin() == BASE
    first = one.end(1)
    assert one.begin() == first
    second = one.end(1, 2)
    assert one.begin() == second
    one.end(1, 2)
    assert one.begin() == second
    assert lineage(each_db) == [
        ("why-first-0a1b2c3d@1", "approved", "why@1"),
        ("why-first-0a1b2c3d@2", "approved", "why-first-0a1b2c3d@1"),
    ]
    with each_db.read() as session:
        row = rubrics.get(session, "why-first-0a1b2c3d")
        assert (row.origin, row.added_by, row.prompt_id) == ("evolved", "first-0a1b2c3d", 1)
        assert rubrics.get(session, "why").version == 1, "the authored name means what it meant"
        assert [one.ref for one in rubrics.for_prompt(session, 1, allow_drafts=True)] == ["why@1"]
        (event,) = rubrics.events(session, [row.id])
        assert (event.by, event.to_state) == ("first-0a1b2c3d", "approved")


def test_begin_step_repeats_what_is_recorded(each_db: Database) -> None:
    one = run(each_db)
    used = [one.begin()]
    one.end(1)
    state = one.buffers.state()
    used.append(one.begin())
    one.end(2)
    used.append(one.begin())
    again = run(each_db, name="of the new process")
    again.buffers.restore(state)
    again.step = 0
    assert [again.begin()] == used[1:2]
    assert again.buffers.open(1, TASK).done == EvolutionRound(active=1)
    again.end(7, 8)  # is recorded already
    assert [again.begin()] == used[2:]
    assert [one.key for one in again.buffers.open(2, TASK).entries] == ["c1", "c2", "c3", "evolved-2"]


def test_versions_that_people_approve_wait_as_drafts(each_db: Database) -> None:
    import_base(each_db)
    one = run(each_db, "human")
    one.begin()
    first = one.end(1)
    assert one.begin() == BASE
    second = one.end(2)
    assert one.begin() == BASE
    assert one.buffers.waiting() == ["why-first-0a1b2c3d@1", "why-first-0a1b2c3d@2"]
    approve(each_db, "why-first-0a1b2c3d@2")
    assert one.begin() == second
    approve(each_db, "why-first-0a1b2c3d@1")
    assert one.begin() == first
    one.end(2)  # what the buffer was before: the person's choice stays
    assert one.begin() == first
    one.end(1)
    one.begin()
    one.end(2)  # another round's result, which is approved already
    assert one.begin() == second
    assert one.buffers.waiting() == []


def approve(db: Database, ref: str) -> None:
    for action in ("submit", "approve"):
        with db.write() as session:
            review(session, ref, action, by="ann")  # type: ignore[arg-type]
