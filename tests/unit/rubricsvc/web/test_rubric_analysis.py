"""The page of an analysis."""

from __future__ import annotations

from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.services.analysing import analyse
from rubricsvc.store.session import Database
from rubricsvc.web.rubric_analysis import render_analysis
from tests.unit.rubricsvc.services.test_analysing import RUBRIC, table, texts
from tests.unit.rubricsvc.services.test_comparing import score
from tests.unit.rubricsvc.web.test_jobs import Page


def test_render_analysis_escapes_texts_and_has_all_criteria(db: Database) -> None:
    first = Criterion(key="<b>", text="<script>alert(1)</script>", weight=2.0)
    rubric = Rubric(criteria=(first, *RUBRIC.criteria[1:]), formula="healthbench")
    score(db, "j", texts(table()), rubric=rubric)
    with db.read() as session:
        found = analyse(session, "r")
    page = Page(render_analysis(found))
    assert "script" not in page.tags
    texts_of_page = " ".join(page.texts)
    assert all(criterion.text in texts_of_page for criterion in rubric.criteria)
    assert all(one.evidence in texts_of_page for one in found[0].advice)


def test_render_analysis_says_how_many_verdicts_advice_needs(db: Database) -> None:
    score(db, "j", texts(table())[:2], rubric=RUBRIC)
    with db.read() as session:
        page = Page(render_analysis(analyse(session, "r")))
    assert "2 completions; advice needs 30 verdicts." in " ".join(page.texts)
