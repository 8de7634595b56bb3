"""Texts on pages, escaped and with what is hidden made visible; curves of a training run."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from scipy import stats

from rubricsvc.core.verdict import Evidence, Verdict
from rubricsvc.web import pages
from rubricsvc.web.charts import curves, metric_points, windows
from rubricsvc.web.jobs import QuoteSpan, locate, segments
from rubricsvc.web.pages import FILTERS, number, render, verdict, visible


def test_visible_replaces_what_hides_or_reorders_text() -> None:
    assert visible("a\x00b\u202ec\u2066d\ud800e\U000e0041f\x1b[2J") == "a\ufffdb\ufffdc\ufffdd\ufffde\ufffdf\ufffd[2J"
    assert visible("one\r\ntwo\tthree") == "one\ntwo\tthree"
    assert visible("👩\u200d⚕ می\u200cخواهم \u200fא") == "👩\u200d⚕ می\u200cخواهم \u200fא"


def test_render_escapes_each_value_and_rejects_undefined_ones() -> None:
    template = pages._environment().from_string("<p title='{{ text }}'>{{ text|upper }}</p>")
    page = template.render(text="<b>'\"&\u202e")
    assert page == "<p title='&lt;b&gt;&#39;&#34;&amp;\ufffd'>&lt;B&gt;&#39;&#34;&amp;\ufffd</p>"
    with pytest.raises(UndefinedError):
        render("run.html.j2")


def test_numbers_are_formatted() -> None:
    assert [number(None), number(-0.001), number(-1.234), number(0.5, 3)] == ["–", "0.00", "−1.23", "0.500"]
    assert [number(one, sign="+") for one in (None, 0.5, -0.5)] == ["–", "+0.50", "−0.50"]
    assert [FILTERS["percent"](share) for share in (None, 0.12345, 1)] == ["0%", "12.35%", "100%"]


def test_verdicts_without_a_value_show_their_outcome() -> None:
    assert [FILTERS["weight"](value) for value in (-2.0, 0.25)] == ["−2", "0.25"]
    expected = ["–", "0.50", "abstained"]
    assert [verdict(None), verdict(Verdict.scored("a", 0.5)), verdict(Verdict.abstained("a"))] == expected
    assert verdict(Verdict.failed("a", "timeout")) == "failed: timeout"


TEXT = "Store it at 2 to 8 °C."


@given(
    st.text(max_size=30), st.lists(st.tuples(st.integers(-2, 40), st.integers(1, 20), st.integers(1, 5)), max_size=8)
)
def test_segments_keep_the_text_and_mark_what_is_quoted(text: str, places: list[tuple[int, int, int]]) -> None:
    """Spans outside the text, or partly, are cut."""
    spans = [QuoteSpan(start, start + length, number) for start, length, number in places]
    found = segments(text, spans)
    assert "".join(part.text for part in found) == text
    at = 0
    for part in found:
        assert part.text
        for place in range(at, at + len(part.text)):
            assert part.numbers == tuple(sorted({one.number for one in spans if one.start <= place < one.end}))
        at += len(part.text)


def test_locate_trusts_offsets_in_the_completion() -> None:
    for quote, place in [
        (Evidence(quote="at 2", start=9, end=13), (9, 13)),
        (Evidence(quote="at 2"), None),
        (Evidence(quote="at 2", start=9, end=99), None),
        (Evidence(quote="at 2", start=5, end=5), None),
    ]:
        assert locate(TEXT, quote, is_original=True) == place


def test_locate_searches_a_trajectory() -> None:
    """The offsets count in one step, and not in the whole trajectory."""
    whole = f"[assistant]\n{TEXT.replace(' ', chr(10))}"
    assert locate(whole, Evidence(quote="it at  2", start=6, end=13), is_original=False) == (18, 25)
    assert locate(whole, Evidence(quote="never (", start=0, end=4), is_original=False) is None
    assert locate(whole, Evidence(quote=" ", start=0, end=1), is_original=False) is None


NAMES = ("reward", "kl/start", "completions/mean_length", "rewards/clear/mean")


def metrics(steps: int) -> list[dict[str, Any]]:
    noise = random.Random(0)
    return [
        {"step": step, "reward_std": 0.2, "completions/min_length": 1, "completions/max_length": 99}
        | {name: noise.gauss(0.5, 0.1) for name in NAMES}
        for step in range(1, steps + 1)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_metric_points_of_a_long_run_are_windows_with_intervals(name: str) -> None:
    points, note = metric_points(metrics(62), [name])
    assert [point.step for point in points] == [*range(3, 57, 5), 59.0]
    assert all(point.low is not None and point.low < point.value < (point.high or 0.0) for point in points)
    assert "5 consecutive" in note


STEPS = [
    {"step": 1, "reward": 0.1, "tools/calls": 0.5, "tools/calls/search": 0.5, "tools/valid_fraction": None},
    {"step": 2, "reward": 0.2, "tools/calls": 1.0, "tools/calls/open": 1.0, "tools/valid_fraction": 0.5},
]


def test_curves_count_a_tool_that_a_step_did_not_call_as_zero() -> None:
    found = {one.heading: one for one in curves(STEPS)}
    assert list(found) == ["Reward", "Well-formed calls", "Calls of tools"]
    calls = [(one.series, one.step, one.value) for one in found["Calls of tools"].points]
    assert calls == [("open", 1, 0.0), ("open", 2, 1.0), ("search", 1, 0.5), ("search", 2, 0.0)]
    assert [one.step for one in found["Well-formed calls"].points] == [2]


def test_windows_are_a_fortieth_of_the_steps_and_at_least_five_from_50_steps_on() -> None:
    for steps, size in [(0, 1), (49, 1), (50, 5), (200, 5), (239, 5), (240, 6), (4000, 100)]:
        points, _ = metric_points([{"step": step, "loss": 0.5} for step in range(steps)], ["loss"])
        assert len(points) == steps // size


def test_windows_have_the_t_interval_over_their_steps() -> None:
    values = np.random.default_rng(0).normal(0.5, 0.1, 12)
    first, last = windows("reward", [(step, float(value)) for step, value in enumerate(values, 1)], 5)
    assert (first.step, last.step) == (3.0, 9.0)
    for window, part in ((first, values[:5]), (last, values[5:])):
        expected = stats.t.interval(0.95, len(part) - 1, part.mean(), stats.sem(part))
        assert window.value == pytest.approx(part.mean())
        assert (window.low, window.high) == pytest.approx(expected, abs=1e-4)
