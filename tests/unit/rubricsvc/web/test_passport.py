"""The page of a passport."""

from __future__ import annotations

from rubricsvc.core.judge import Judge
from rubricsvc.web.passport import render_passport
from tests.made_passport import made_passport
from tests.unit.rubricsvc.web.test_jobs import Page

JUDGE = Judge(name="made-up", engine="transformers_local", model="m")


def test_render_passport_shows_every_part() -> None:
    passport = made_passport()
    page = Page(render_passport(JUDGE, passport))
    texts = [
        *passport.not_for,
        *(table.name for table in passport.tables),
        *(source.license for source in passport.data),
        *(one.left_out for one in passport.ablations),
        *(suite.name for suite in passport.audit.suites if passport.audit),  # type: ignore[union-attr]
        "0.940 [0.93, 0.95]",
        "bag of words 0.820",
        "pairwise accuracy 0.764",
        "accuracy 0.900; one class",
        "+0.275",
        "0.0071",
        "1,234 steps",
    ]
    assert [text for text in texts if text.casefold() not in page.text.casefold()] == []


def test_render_passport_loads_nothing_and_runs_nothing() -> None:
    page = Page(render_passport(JUDGE, made_passport()))
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not {"src", "href", "onclick", "onload", "srcset"} & page.attributes


def test_render_passport_escapes_texts() -> None:
    evil = '<script>alert("x")</script>'
    passport = made_passport()
    source = passport.data[0].model_copy(update={"name": evil, "license": evil})
    table = passport.tables[0].model_copy(update={"name": evil, "description": evil})
    html = render_passport(
        JUDGE.model_copy(update={"name": evil}),
        passport.model_copy(update={"data": (source,), "tables": (table,), "not_for": (evil,), "description": evil}),
    )
    assert "script" not in Page(html).tags and evil in Page(html).text
