"""Weights fitted from recorded verdicts and labels, and stored as a version."""

import numpy as np
import pytest

from rubricsvc.core.rubric_analysis import WeightFit
from rubricsvc.core.verdict import Label
from rubricsvc.errors import ConflictError
from rubricsvc.queries import FitQuery
from rubricsvc.services.analysing import fit
from rubricsvc.services.rubrics import Rubrics
from rubricsvc.services.versions import Edit, add_version
from rubricsvc.store import labels, rubrics
from rubricsvc.store.session import Database
from tests.unit.rubricsvc.services.test_analysing import RUBRIC, table, texts
from tests.unit.rubricsvc.services.test_comparing import score

TRUE = np.array([0.1, 0.1, 0.0, -0.5, 0.3])


def scored(db: Database, *, shuffled: bool = False) -> np.ndarray:
    """Completions with verdicts and an overall score by their `TRUE` weights; ``shuffled`` over the completions."""
    values = table()
    score(db, "j", texts(values), rubric=RUBRIC)
    overall = (values @ TRUE + 0.5).clip(0, 1)
    if shuffled:
        overall = np.random.default_rng(0).permutation(overall)
    with db.write() as session:
        entries = [
            (n + 1, 1, Label(criterion="overall", annotator="ann", value=value)) for n, value in enumerate(overall)
        ]
        labels.add_many(session, entries)
    return values


def fitted(db: Database, **options: object) -> WeightFit:
    with db.read() as session:
        return fit(session, "r", FitQuery(**{"to": "labels"} | options), resamples=30)  # type: ignore[arg-type]


@pytest.mark.parametrize("to", ["labels", "preferences"])
def test_fit_orders_completions_as_people_do(each_db: Database, to: str) -> None:
    scored(each_db)
    found = fitted(each_db, to=to)
    new = {one.key: one.new for one in found.weights}
    assert (found.rubric, found.judge, found.people, found.prompts) == ("r@1", "j", 1, 20)
    assert new["rude"] < -new["long"] < 0 < new["right"]
    assert [one.key for one in found.weights if one.kept] == ["always"]
    metric = "pearson" if to == "labels" else "accuracy"
    by_name = {one.weights: one.metrics for one in found.held_out}
    assert by_name["fitted"][metric].value == pytest.approx(1.0, abs=0.05)
    gain = found.gain[metric]
    assert gain.low is not None and gain.low > 0


def test_fit_to_shuffled_scores_predicts_nothing(db: Database) -> None:
    scored(db, shuffled=True)
    held_out = {one.weights: one.metrics["pearson"] for one in fitted(db, signs="free").held_out}
    assert held_out["fitted"].value is None or held_out["fitted"].value < 0.25


def saved(db: Database, **options: object) -> WeightFit:
    return Rubrics(db, Edit(by="ann")).fit("r", FitQuery(to="labels", save=True, **options))  # type: ignore[arg-type]


def test_fit_saves_a_version_that_says_where_it_is_from(db: Database) -> None:
    scored(db)
    found = saved(db)
    with db.read() as session:
        row = rubrics.get(session, found.saved or "")
    assert (row.ref, row.version, row.origin, row.state, row.parent_id) == ("r@2", 2, "fitted", "draft", 1)
    assert [c.weight for c in row.value.criteria] == [one.new for one in found.weights]
    assert [c.question for c in row.value.criteria] == [c.question for c in RUBRIC.criteria]


def test_fit_refuses_to_save_weights_of_a_version_that_was_edited_since(db: Database) -> None:
    scored(db)
    with db.write() as session:
        edited = RUBRIC.model_copy(update={"criteria": RUBRIC.criteria[:2]})
        add_version(session, edited, Edit(by="bob", parent="r@1", draft=True), name="r")
    with pytest.raises(ConflictError):
        saved(db)
    with db.read() as session:
        refused = rubrics.get(session, "r@3")
    assert (refused.state, refused.parent_id) == ("draft", 1)
    assert saved(db, force=True).saved == "r@3"
