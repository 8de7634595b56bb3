"""The report: escaping, and no requests to the network."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from rubricsvc.cli.demo.folder import FAST
from rubricsvc.cli.demo.report import Report, change_sentence, write
from rubricsvc.cli.demo.results import CriterionResult, Example, QuestionResult, RubricComparison, ScoredCompletion
from rubricsvc.core.rubric import Check, Criterion
from rubricsvc.core.verdict import Verdict

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{ 7 * 7 }}</blockquote>"

SUMMARY: dict[str, Any] = {
    "prompts": 2,
    "rubrics": 3,
    "completions": 4,
    "verdicts": 8,
    "failed_verdicts": 1,
    "failed_reasons": {"timeout": 1},
    "training_failed_verdicts": 0,
    "training_completions": 8,
    "reward_before": 0.25,
    "reward_after": 0.5,
    "heldout_before": None,
    "heldout_after": None,
    "reward_change_se": 0.1,
    "heldout_change_se": None,
    "train_steps": 2,
    "seconds": 90.0,
}


def hostile_report() -> Report:
    judged = Criterion(key="a", text=HOSTILE, required=True)
    checked = Criterion(key="b", text=HOSTILE, weight=-2, check=Check(name="contains", args={"terms": [HOSTILE]}))
    verdicts = [
        (judged, Verdict.scored("a", 0.5, rationale=HOSTILE), HOSTILE),
        (checked, Verdict.failed("b", "timeout", detail=HOSTILE), HOSTILE),
        (judged, Verdict.abstained("a"), ""),
    ]
    before = ScoredCompletion(HOSTILE, truncated=True, reward=None, vetoed_by=None, verdicts=verdicts)
    after = ScoredCompletion("", truncated=False, reward=0.0, vetoed_by=judged, verdicts=[])
    one = QuestionResult("one", HOSTILE, held_out=False, before=[0.2, None], after=[0.4, 0.6])
    row = CriterionResult(HOSTILE, checked, None, 0.5)
    return Report(
        summary=SUMMARY,
        size=FAST,
        questions=[one, QuestionResult(HOSTILE, "two", held_out=True, before=[None], after=[0.4])],
        steps=[
            {"step": 1, "reward": 0.2, "reward_std": 0.1},
            {"step": 2, "reward": None, "reward_std": None},
            {"step": 3, "reward": 0.4, "reward_std": 0.2},
        ],
        criteria=[row],
        examples=[Example(HOSTILE, True, before, after)],
        comparisons=[RubricComparison(one, one, [row])],
        provenance={HOSTILE: HOSTILE},
        digests={HOSTILE: "0123456789abcdef" * 4},
    )


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write(path, hostile_report())
    return path.read_text(encoding="utf-8")


def test_write_escapes_text(page: str) -> None:
    seen = Elements()
    seen.feed(page)
    assert not {"script", "img", "iframe", "object"} & set(seen.tags)
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    assert "&lt;script&gt;alert(1)" in page
    assert "{{ 7 * 7 }}" in page and "49</" not in page


def test_page_loads_nothing(page: str) -> None:
    seen = Elements()
    seen.feed(page)
    assert "link" not in seen.tags
    urls = [value for name, value in seen.attributes if name in ("src", "href", "xlink:href", "srcset")]
    assert not [value for value in urls if value and not value.startswith(("#", "data:"))]
    assert not re.search(r"@import|url\(\s*['\"]?https?:", page)


def test_page_shows_failures(page: str) -> None:
    assert "failed: timeout" in page and "(1 timeout)" in page
    assert "abstained" in page
    assert "No reward: a verdict failed" in page


def test_page_marks_truncated_vetoed_and_empty_completions(page: str) -> None:
    assert f"truncated at {FAST.max_new_tokens} tokens" in page
    assert "The reward is 0 because a required criterion is not met" in page
    assert "(empty completion)" in page


def test_charts_are_drawn_for_a_screen_and_for_a_phone(page: str) -> None:
    """A phone of 390 pixels leaves 300 to a chart; a wider one would shrink with its text."""
    drawn = re.findall(r'<div class="(wide|narrow)"><svg [^>]*?width="(\d+)"', page)
    assert [name for name, _ in drawn] == ["wide", "narrow"] * 2
    assert all(int(width) <= (300 if name == "narrow" else 768) for name, width in drawn)
    assert {float(size) for size in re.findall(r'font-size="([\d.]+)px"', page)} == {12.0}


def test_digests_are_short_with_the_whole_in_the_title(page: str) -> None:
    whole = "0123456789abcdef" * 4
    assert page.count(whole) == 1 and f'title="{whole}">0123456789ab…<' in page


@pytest.mark.parametrize(
    ("after", "word"), [((0.5, 0.6, 0.7), "rose"), ((0.1, 0.2, 0.1), "fell"), ((0.2, 0.6, 0.3), "chance")]
)
def test_change_sentence_respects_the_standard_error(after: tuple[float, ...], word: str) -> None:
    before = (0.3, 0.4, 0.4)
    questions = [
        QuestionResult(str(n), "", held_out=False, before=[b], after=[a])
        for n, (b, a) in enumerate(zip(before, after, strict=True))
    ]
    assert word in change_sentence(questions)
    assert "Too few" in change_sentence(questions[:1])
