"""The report: escaping, and no requests to the network."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from rubricsvc.cli.demo.folder import FAST
from rubricsvc.cli.demo.questions import Question
from rubricsvc.cli.demo.report import change_sentence, render_report
from rubricsvc.cli.demo.results import QuestionResult, ScoredCompletion
from rubricsvc.core.passport import Passport
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from tests.made_passport import made_passport

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
    "reward_change": 0.25,
    "reward_change_se": 0.1,
    "heldout_before": None,
    "heldout_after": None,
    "heldout_change": None,
    "heldout_change_se": None,
    "train_steps": 2,
    "scored_by": "celery",
    "seed": 0,
    "judge": "embedded",
    "judged_share": 0.5,
    "judge_digest": "0123456789abcdef" * 4,
    "seconds": 90.0,
    "continued": False,
}


def hostile_page(passport: Passport) -> str:
    judged = Criterion(key="a", text=HOSTILE, required=True)
    checked = Criterion(key="b", text=HOSTILE, weight=-2, check=Check(name="contains", args={"terms": [HOSTILE]}))
    third = Criterion(key="c", text=HOSTILE)
    rubric = Rubric(criteria=[judged, checked, third])
    verdicts = {
        "a": Verdict.scored("a", 0.5, rationale=HOSTILE),
        "b": Verdict.failed("b", "timeout", detail=HOSTILE),
        "c": Verdict.abstained("c"),
    }
    before = ScoredCompletion(HOSTILE, truncated=True, reward=None, vetoed_by=None, verdicts=verdicts)
    after = ScoredCompletion("", truncated=False, reward=0.0, vetoed_by="a", verdicts={})
    one = Question(HOSTILE, HOSTILE, Prompt.of(HOSTILE), rubric, held_out=False)
    two = Question("two", "two", Prompt.of("two"), rubric, held_out=True)
    results = [
        QuestionResult(one, rubric, [before], [after]),
        QuestionResult(one, Rubric(criteria=[third]), [before], [after]),
        QuestionResult(two, rubric, [before], [after]),
    ]
    steps = [
        {"step": 1, "reward": 0.2, "reward_std": 0.1},
        {"step": 2, "reward": None, "reward_std": None},
        {"step": 3, "reward": 0.4, "reward_std": 0.2},
    ]
    return render_report(FAST, results, steps, SUMMARY, passport)


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def hostile_passport() -> Passport:
    made = made_passport()
    tables = tuple(table.model_copy(update={"name": f"{table.name} {HOSTILE}"}) for table in made.tables)
    changes = {"description": HOSTILE, "not_for": (*made.not_for, HOSTILE), "tables": tables}
    return made.model_copy(update=changes)


@pytest.fixture(scope="module")
def page() -> str:
    return hostile_page(hostile_passport())


def test_page_shows_the_passport() -> None:
    page = hostile_page(made_passport())
    assert "statements, unseen documents" in page
    assert "0.985" in page and "0.970" in page  # the judge, and its best baseline
    assert "by variant" not in page and "variant 3" in page  # of a set of few parts each part
    assert "master keys" in page and "must not be used for" in page


@pytest.mark.parametrize("left_out", ["tables", "audit", "audit_untrained", "not_for"])
def test_page_of_a_passport_without_a_part(left_out: str) -> None:
    empty = () if left_out in ("tables", "not_for") else None
    assert "How good the judge is" in hostile_page(made_passport().model_copy(update={left_out: empty}))


def test_render_report_escapes_text(page: str) -> None:
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
    assert "No reward:" in page


def test_page_marks_truncated_vetoed_and_empty_completions(page: str) -> None:
    assert f"truncated at {FAST.max_new_tokens} tokens" in page
    assert "required" in page
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
    ("change", "word"), [((0.3, 0.1), "rose"), ((-0.3, 0.1), "fell"), ((0.2, 0.1), "chance"), ((None, None), "few")]
)
def test_change_sentence_respects_the_standard_error(change: tuple[float | None, float | None], word: str) -> None:
    assert word in change_sentence(*change)
