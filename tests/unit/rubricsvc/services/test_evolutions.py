"""Rubrics that evolve in the steps of a run."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from rubricsvc.core.evolution import USED, Approve, BufferedCriterion, EvolutionRound, EvolutionState
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, NumberRange, Rubric, RubricExample
from rubricsvc.errors import ConflictError, InvalidError
from rubricsvc.services.evolutions import Evolutions
from rubricsvc.services.rubrics import Rubrics
from rubricsvc.services.versions import Edit
from rubricsvc.store import completions, rubrics
from rubricsvc.store.session import Database, by_id, page_of
from rubricsvc.store.tables import EvolutionRow, RubricEventRow, RubricRow
from tests.rows import RUBRIC as BASE
from workers.evolution import Round, evolved_rubric, hold_rounds

TASK = (Prompt.of("Why?"), BASE, "", "")
NAME = "first-0a1b2c3d"


def entry(number: int, state: str = "active") -> BufferedCriterion:
    criterion = Criterion(key=f"evolved-{number}", text=f"Says reason number {number}.")
    return BufferedCriterion.model_validate({"criterion": criterion, "state": state})


@dataclass
class Run:
    """A run of one prompt, and the source of its rounds: criteria by number, all of which are kept."""

    evolutions: Evolutions
    approve: Approve = "auto"
    step: int = -1
    active: tuple[int, ...] = ()
    asked: list[int] = field(default_factory=list)

    def begin(self) -> Rubric:
        self.step += 1
        return self.state().rubric

    def state(self) -> EvolutionState:
        (state,) = self.evolutions.begin_step(run=NAME, step=self.step, approve=self.approve, tasks=(TASK,))
        return state

    def propose(self, rounds: Sequence[Round]) -> None:
        for one in rounds:
            self.asked.append(one.step)
            known = {each.key for each in one.entries}
            one.entries += [new for new in (entry(n, "proposed") for n in self.active) if new.key not in known]
            one.done = EvolutionRound(raw_reply="{}")

    def measure(self, rounds: Sequence[Round]) -> None:
        """Nothing is measured."""

    def decide(self, one: Round) -> tuple[dict[str, Any], Rubric]:
        kept = {entry(number).key for number in self.active}
        decided = {each.key: None if each.key in kept else "limit" for each in one.entries if each.state != "frozen"}
        return decided, evolved_rubric(BASE, [entry(number) for number in self.active], 0.1)

    def end(self, *active: int) -> Rubric:
        self.active = active
        state = self.state()
        done = state.round or EvolutionRound()
        one = Round(state.id, self.step, BASE, state.rubric, list(state.entries), done, state.round is None)
        hold_rounds(self.evolutions, [one], self, approve=self.approve)
        return evolved_rubric(BASE, one.entries, 0.1)


def run(db: Database, approve: Approve = "auto") -> Run:
    return Run(Evolutions(db), approve)


def lineage(db: Database, name: str = "why-first-0a1b2c3d") -> list[tuple[str, str, str | None]]:
    with db.read() as session:
        rows = page_of(session, RubricRow, name=name)
        parents = by_id(session, RubricRow, [row.parent_id for row in rows if row.parent_id])
        return [(row.ref, row.state, parents[row.parent_id].ref if row.parent_id else None) for row in rows]


def import_base(db: Database) -> None:
    with db.write() as session:
        rubrics.add(session, BASE, name="why", prompt_id=completions.add_prompt(session, TASK[0]).id)


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
        (event,) = page_of(session, RubricEventRow, 0, 9, rubric_id=row.id)
        assert (event.by, event.to_state) == ("first-0a1b2c3d", "approved")


def test_begin_step_repeats_what_is_recorded(each_db: Database) -> None:
    one = run(each_db)
    used = [one.begin()]
    one.end(1)
    used.append(one.begin())
    one.end(2)
    used.append(one.begin())
    again = run(each_db)  # of a new process, which continues after step 1
    again.step = 0
    assert [again.begin()] == used[1:2]
    again.end(7, 8)  # is recorded already
    assert [again.begin()] == used[2:] and again.asked == []
    found = Evolutions(each_db).get(1)
    assert [one.key for one in found.entries if one.state in USED] == ["c1", "c2", "c3", "evolved-2"]
    expected = EvolutionRound(decided=True, active=1, raw_reply="{}", activated=("evolved-2",), retired=("evolved-1",))
    assert found.rounds[1].round == expected


def test_versions_that_people_approve_wait_as_drafts(each_db: Database) -> None:
    import_base(each_db)
    one = run(each_db, "human")
    one.begin()
    first = one.end(1)
    assert one.begin() == BASE
    second = one.end(2)
    assert one.begin() == BASE
    assert [state for _, state, _ in lineage(each_db)] == ["draft", "draft"]
    approve(each_db, "why-first-0a1b2c3d@2")
    assert one.begin() == second
    approve(each_db, "why-first-0a1b2c3d@1")
    assert one.begin() == second, "the newest approved one"
    assert one.end(1) == first
    assert one.begin() == first, "a round's result that is approved already"
    Rubrics(each_db).review("why-first-0a1b2c3d@1", action="retire")
    assert one.begin() == second


def approve(db: Database, ref: str) -> None:
    for action in ("submit", "approve"):
        Rubrics(db).review(ref, action=action)  # type: ignore[arg-type]


def test_begin_step_refuses_a_database_without_the_earlier_steps(db: Database) -> None:
    with pytest.raises(ConflictError, match="does not have the rubric versions"):
        Evolutions(db).begin_step(run=NAME, step=3, approve="auto", tasks=(TASK,))


def test_begin_step_refuses_automatic_approval_where_people_approve_or_test(db: Database) -> None:
    tested = BASE.model_copy(update={"examples": (RubricExample(key="e", text="a", reward=NumberRange(min=0)),)})
    for policy, tasks in (("all", ()), ("four_eyes", ()), ("generated", ((TASK[0], tested, "", ""),))):
        with pytest.raises(InvalidError) as error:
            Evolutions(db, Edit(policy=policy)).begin_step(run=NAME, step=0, approve="auto", tasks=tasks)  # type: ignore[arg-type]
        assert error.value.path == "evolve.approve"


def test_begin_step_stores_drafts_where_people_approve_all(db: Database) -> None:
    Evolutions(db, Edit("ann", policy="all")).begin_step(run=NAME, step=0, approve="human", tasks=(TASK,))
    with db.read() as session:
        (row,) = page_of(session, RubricRow)
        assert (row.state, row.added_by) == ("draft", "ann")


def test_record_takes_one_of_several_processes(each_db: Database) -> None:
    with each_db.write() as session:
        row = EvolutionRow(key="k", rubric_id=rubrics.add(session, BASE, name="why").id)
        session.add(row)
        session.flush()
        record = partial(Evolutions(each_db).record, row.id, step=0, entries=())
    record(round=EvolutionRound(raw_reply="a"))
    with pytest.raises(ConflictError):
        record(round=EvolutionRound(raw_reply="b"))

    def decided(number: int) -> bool:
        with suppress(ConflictError):
            record(round=EvolutionRound(decided=True, raw_reply=str(number)))
            return True
        return False

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(decided, range(4))) == 1
