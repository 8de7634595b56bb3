"""Texts on pages: escaped, and with what is hidden made visible."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError

from rubricsvc.core.verdict import Verdict
from rubricsvc.web import pages
from rubricsvc.web.pages import number, percent, render, signed, verdict, visible, weight


def test_visible_replaces_what_hides_or_reorders_text() -> None:
    assert visible("a\x00b\u202ec\u2066d\ud800e\U000e0041f\x1b[2J") == "a\ufffdb\ufffdc\ufffdd\ufffde\ufffdf\ufffd[2J"
    assert visible("one\r\ntwo\tthree") == "one\ntwo\tthree"
    assert visible("👩\u200d⚕ می\u200cخواهم \u200fא") == "👩\u200d⚕ می\u200cخواهم \u200fא"


def test_render_escapes_each_value_and_rejects_undefined_ones() -> None:
    template = pages._environment().from_string("<p title='{{ text }}'>{{ text|upper }}</p>")
    page = template.render(text="<b>'\"&\u202e")
    assert page == "<p title='&lt;b&gt;&#39;&#34;&amp;\ufffd'>&lt;B&gt;&#39;&#34;&amp;\ufffd</p>"
    with pytest.raises(UndefinedError):
        render("audit.html.j2")


def test_numbers_are_formatted() -> None:
    assert [number(None), number(-0.001), number(-1.234), number(0.5, 3)] == ["–", "0.00", "−1.23", "0.500"]
    assert [signed(None), signed(0.5), signed(-0.5)] == ["–", "+0.50", "−0.50"]
    assert [percent(None), percent(0.12345), percent(1)] == ["0%", "12.35%", "100%"]


def test_verdicts_without_a_value_show_their_outcome() -> None:
    assert [weight(-2.0), weight(0.25)] == ["−2", "0.25"]
    assert [verdict(None), verdict(Verdict.scored("a", 0.5)), verdict(Verdict.abstained("a"))] == [
        "–",
        "0.50",
        "abstained",
    ]
    assert verdict(Verdict.failed("a", "timeout")) == "failed: timeout"
