"""The page of a passport."""

from __future__ import annotations

import re

from rubricsvc.core.audit import Audit, Rate, SuiteResult
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import Passport, Table
from rubricsvc.web.passport import MAX_CARDS, Axis, duration, option_text, overviews, render_passport
from tests.made_passport import made_passport
from tests.unit.rubricsvc.web.test_jobs import Page

JUDGE = Judge(name="made-up", engine="transformers_local", model="m")


def bare() -> Passport:
    """Return a passport with nothing that may be left out."""
    left_out = ("tables", "ablations", "calibration", "repeatability", "agreement", "audit")
    fields = made_passport().model_dump(exclude={*left_out, "audit_untrained", "description"})
    return Passport.model_validate(fields | {"data": (), "not_for": ()})


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


def test_render_passport_without_figures_leaves_their_parts_out() -> None:
    page = Page(render_passport(JUDGE, bare()))
    assert "svg" not in page.tags
    assert "How it was made" in page.text and "Calibration" not in page.text


def test_render_passport_of_one_without_values_has_dashes() -> None:
    table = Table(name="one class", rows=made_passport().tables[0].rows)
    rows = tuple(row.model_copy(update={"figures": {}}) for row in table.rows)
    suite = SuiteResult(name="s", measure="met", rate=Rate(n=0, hits=0), max_rate=0.1, reason="no finding")
    audit = Audit(digest="d" * 64, fingerprint="f" * 64, suites=(suite,))
    passport = bare().model_copy(update={"tables": (table.model_copy(update={"rows": rows}),), "audit": audit})
    text = Page(render_passport(JUDGE, passport)).text
    assert "–" in text and "no finding" in text


def test_render_passport_limits_the_cards_at_the_top() -> None:
    html = render_passport(JUDGE, made_passport())
    cards = re.search(r'<section class="figures" aria-label="Figures">.*?</section>', html, re.DOTALL)
    assert cards is not None and cards[0].count('class="card"') == MAX_CARDS


def test_axis_is_in_whole_tenths_around_the_numbers() -> None:
    axis = Axis.of([0.47, None, 0.98])
    assert (axis.low, axis.high) == (0.4, 1.0)
    assert (axis.at(0.4), axis.at(0.7), axis.at(1.0), axis.at(2.0)) == (0, 50, 100, 100)
    assert Axis.of([]) == Axis(0.0, 1.0) and Axis.of([0.5]).high > 0.5


def test_overviews_have_sets_by_measure_and_parts_by_themselves() -> None:
    tables = made_passport().tables
    brier = tables[0].model_copy(update={"measure": "brier"})
    found = overviews([*tables, brier])
    assert [(one.name, one.measure, len(one.forests)) for one in found] == [
        ("", "auroc", len(tables) - 1),
        ("", "brier", 1),
        ("by variant", "auroc", 5),
    ]


def test_duration_and_options_are_texts() -> None:
    assert [duration(s) for s in (5, 600, 9000)] == ["5 seconds", "10 minutes", "2.5 hours"]
    assert option_text({"lr": 6e-4, "on": [1, "a"], "of": {"b": True}}) == "lr 0.0006, on (1, a), of (b yes)"
