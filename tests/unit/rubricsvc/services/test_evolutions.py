"""Rubrics evolved on labels, where a true improvement is found and none in permuted ones, and in the steps of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from rubricsvc.core.evolution import (
    USED,
    BufferedCriterion,
    EvolutionReport,
    EvolutionRequest,
    EvolutionRound,
    evolved_rubric,
)
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Label
from rubricsvc.errors import ConflictError, InvalidError
from rubricsvc.services.evolutions import Evolutions
from rubricsvc.services.evolving import Approve, Round, RunEvolutions, hold_rounds
from rubricsvc.services.rubrics import Rubrics
from rubricsvc.store import completions, labels, rubrics
from rubricsvc.store.session import Database, by_id, page_of
from rubricsvc.store.tables import RubricEventRow, RubricRow
from tests.rows import RUBRIC as BASE
from tests.unit.rubricsvc.services.test_comparing import score

PROMPTS, EACH = 40, 4
WEIGHTS = {"right": 1.0, "clear": 1.0, "long": 6.0, "rude": -4.0}
RUBRIC = Rubric(criteria=tuple(Criterion(key=key, text=f"Is {key}.", weight=w) for key, w in WEIGHTS.items()))
SMALL: dict[str, Any] = {"rounds": 4}


def no_job(job_id: int) -> None:
    raise AssertionError(f"job {job_id}")


def labelled(db: Database, *, permuted: bool = False, prompts: int = PROMPTS, rubric: Rubric = RUBRIC) -> None:
    """Completions whose scores by a person follow "right" and "clear", which the start weighs least."""
    random = np.random.default_rng(1)
    values = random.integers(0, 2, (prompts * EACH, len(WEIGHTS))).astype(float)
    texts = [(f"prompt {n // EACH}", f"text {n}", list(row)) for n, row in enumerate(values.tolist())]
    score(db, "j", texts, rubric=rubric)
    overall = (values @ [0.6, 0.25, 0.0, 0.0] + random.uniform(0, 0.15, len(values))).round(3)
    if permuted:
        overall = random.permutation(overall)
    with db.write() as session:
        entries = [
            (n + 1, 1, Label(criterion="overall", annotator="ann", value=value))
            for n, value in enumerate(overall.tolist())
        ]
        labels.add_many(session, entries)


def evolved(db: Database, propose: Any = None, on_progress: Any = lambda *_: None, **options: Any) -> EvolutionReport:
    request = EvolutionRequest(**(SMALL | options))
    return Evolutions(db).evolve("r", request, no_job, propose, on_progress=on_progress)


def test_evolution_finds_an_improvement_by_construction(each_db: Database) -> None:
    labelled(each_db)
    found = evolved(each_db)
    assert found.held_out is not None and found.finished_at is not None and found.held_out.gain
    assert found.held_out.best > found.held_out.start and (found.held_out.difference.low or 0.0) > 0
    assert found.settings is not None and found.settings.judge == "j"
    scores = [one.round.score for one in found.rounds if one.round and one.round.score is not None]
    assert scores == sorted(scores) and len(scores) == 5
    assert (found.newest, found.jobs, found.steps) == ("r@2", (), 4)
    with each_db.read() as session:
        row = rubrics.get(session, "r@2")
        assert (row.state, row.parent_id, row.origin) == ("draft", 1, "evolved")
        assert rubrics.get(session, "r").version == 1


def test_evolution_reports_no_gain_on_permuted_labels(db: Database) -> None:
    """A 95 % interval is above 0 by chance in one of 40 searches: two of three are no chance."""
    labelled(db, permuted=True)
    found = [evolved(db, seed=seed).held_out for seed in range(3)]
    assert sum(one is not None and not one.gain for one in found) >= 2


def test_evolution_is_the_same_for_a_seed_and_when_it_is_continued(db: Database) -> None:
    labelled(db)
    whole = evolved(db, seed=1)
    seen = list[int]()

    def interrupt(done: int, total: int, note: str) -> None:
        seen.append(done)
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evolved(db, seed=1, rounds=5, on_progress=interrupt)
    assert Evolutions(db).get(2).steps == 3 and seen == [0, 1, 2, 3]
    resumed = evolved(db, seed=1, rounds=5)
    assert [one.round for one in resumed.rounds[:4]] == [one.round for one in whole.rounds[:4]]
    assert resumed.id == 2 and evolved(db, seed=1, rounds=5) == resumed, "a finished one is not searched again"


def test_proposals_are_stored_before_they_are_tried(db: Database) -> None:
    labelled(db)
    asked = list[int]()

    def propose(base: Rubric, entries: Any, *, step: int, texts: dict[str, str], budget: float | None) -> Any:
        asked.append(step)
        assert texts and all("People gave it" in text for text in texts.values())
        criterion = Criterion(key="evolved-1", text="Names a cause.")
        done = EvolutionRound(proposed=("evolved-1",), cost=0.5, raw_reply="{}")
        return [BufferedCriterion(criterion=criterion, state="proposed")], done

    for _ in range(2):
        with pytest.raises(AssertionError, match="job 2"):
            evolved(db, propose)
    found = Evolutions(db).get(1)
    assert asked == [0] and found.cost == 0.5, "it is paid for, although the round is under way"
    (one,) = found.rounds
    assert one.round is not None and (one.round.decided, one.round.proposed) == (False, ("evolved-1",))


@pytest.mark.parametrize(("prompts", "value"), [(6, None), (PROMPTS, 1.0)])
def test_start_refuses_too_few_labels_and_labels_of_one_class(db: Database, prompts: int, value: float | None) -> None:
    labelled(db, prompts=prompts)
    if value is not None:
        with db.write() as session:
            label = Label(criterion="overall", annotator="ann", value=value)
            labels.add_many(session, [(n + 1, 1, label) for n in range(prompts * EACH)], replace=True)
    with pytest.raises(InvalidError) as error:
        evolved(db)
    assert error.value.path == "labels"


TASK = (Prompt.of("Why?"), BASE)


def entry(number: int, state: str = "active") -> BufferedCriterion:
    criterion = Criterion(key=f"evolved-{number}", text=f"Says reason number {number}.")
    return BufferedCriterion.model_validate({"criterion": criterion, "state": state})


@dataclass
class Run:
    """A run of one prompt, and the source of its rounds: criteria by number, all of which are kept."""

    buffers: RunEvolutions
    step: int = -1
    active: tuple[int, ...] = ()
    asked: list[int] = field(default_factory=list)

    def begin(self) -> Rubric:
        self.step += 1
        (rubric,) = self.buffers.begin_step(self.step, [TASK])
        return rubric

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
        ids = self.buffers.ids([TASK])
        (one,) = hold_rounds(self.buffers.db, self.step, ids, self, approve=self.buffers.approve)
        assert one.done is not None
        return evolved_rubric(BASE, one.entries, 0.1)


def run(db: Database, approve: Approve = "auto", name: str = "first-0a1b2c3d") -> Run:
    return Run(RunEvolutions(db, name, approve))


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
    expected = EvolutionRound(active=1, raw_reply="{}", activated=("evolved-2",), retired=("evolved-1",))
    assert found.rounds[1].round == expected


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
        Rubrics(db).review(ref, action=action)  # type: ignore[arg-type]


def test_begin_step_refuses_a_database_without_the_earlier_steps(db: Database) -> None:
    with pytest.raises(ConflictError, match="does not have the rubric versions"):
        RunEvolutions(db, "first-0a1b2c3d", "auto").begin_step(3, [TASK])
