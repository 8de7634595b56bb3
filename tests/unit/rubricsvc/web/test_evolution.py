"""The page of an evolution."""

from __future__ import annotations

from rubricsvc.core.rubric import Criterion
from rubricsvc.store.session import Database
from rubricsvc.web.evolution import picture, render_evolution
from tests.unit.rubricsvc.services.test_evolving import RUBRIC, evolved, labelled
from tests.unit.rubricsvc.web.test_jobs import Page


def test_render_evolution_escapes_texts_and_draws_all_candidates(db: Database) -> None:
    hostile = Criterion(key="<b>", text="<script>alert(1)</script>", weight=6.0)
    labelled(db, rubric=RUBRIC.model_copy(update={"criteria": (*RUBRIC.criteria[:2], hostile, RUBRIC.criteria[3])}))
    found = evolved(db)
    page = Page(render_evolution(found))
    assert "script" not in page.tags and "b" in page.tags
    assert page.tags.count("circle") == len(found.candidates) if isinstance(page.tags, list) else "circle" in page.tags


def test_picture_joins_the_best_candidate_to_the_start(db: Database) -> None:
    labelled(db)
    found = evolved(db)
    drawn = picture(found)
    path = {(edge.start.one.number, edge.end.one.number) for edge in drawn.edges if edge.on_path}
    wanted = {(parent, one.number) for one in found.lineage for parent in one.parents}
    assert path >= wanted
    assert {node.one.number for node in drawn.nodes} == {one.number for one in found.candidates}
