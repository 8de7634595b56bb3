"""Rubrics evolved on labels: a true improvement is found, and none in permuted ones."""

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import pytest

from rubricsvc.core.evolution import BufferedCriterion, EvolutionReport, EvolutionRequest, EvolutionRound
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Label
from rubricsvc.errors import InvalidError, UnavailableError
from rubricsvc.services.evolutions import Evolutions
from rubricsvc.services.local import LocalService
from rubricsvc.store import labels, rubrics
from rubricsvc.store.session import Database
from tests.unit.rubricsvc.services.test_comparing import score
from workers.evolution import evolve_on_labels

PROMPTS, EACH = 40, 4
WEIGHTS = {"right": 1.0, "clear": 1.0, "long": 6.0, "rude": -4.0}
RUBRIC = Rubric(criteria=tuple(Criterion(key=key, text=f"Is {key}.", weight=w) for key, w in WEIGHTS.items()))
SMALL: dict[str, Any] = {"rounds": 4}


def no_job(job_id: int) -> NoReturn:
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


def evolved(db: Database, on_progress: Any = lambda *_: None, **options: Any) -> EvolutionReport:
    request = EvolutionRequest(**({"rubric": "r"} | SMALL | options))
    return Evolutions(db).get(evolve_on_labels(LocalService(db), request, no_job, on_progress))


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


def test_proposals_are_stored_before_they_are_tried(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    labelled(db)
    asked = list[int]()

    async def propose(*given: Any, texts: Mapping[str, str], limit: Any) -> Any:
        asked.append(len(asked))
        assert texts and all("People gave it" in text for text in texts.values())
        criterion = Criterion(key="evolved-1", text="Names a cause.")
        done = EvolutionRound(proposed=("evolved-1",), cost=0.5, raw_reply="{}")
        return [BufferedCriterion(criterion=criterion, state="proposed")], done

    monkeypatch.setattr("workers.evolution.propose_criteria", propose)
    for _ in range(2):
        with pytest.raises(AssertionError, match="job 2"):
            evolved(db, proposer="j")
    found = Evolutions(db).get(1)
    assert asked == [0] and found.cost == 0.5, "it is paid for, although the round is under way"
    (one,) = found.rounds
    assert one.round is not None and (one.round.decided, one.round.proposed) == (False, ("evolved-1",))


def test_proposals_that_fail_are_paid_for_and_asked_again(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    labelled(db)

    async def fail(*given: Any, **_: Any) -> Any:
        return [], EvolutionRound(failure="server_error: down", cost=0.5)

    monkeypatch.setattr("workers.evolution.propose_criteria", fail)
    for cost in (0.5, 1.0):
        with pytest.raises(UnavailableError):
            evolved(db, proposer="j")
        assert Evolutions(db).get(1).cost == cost


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
