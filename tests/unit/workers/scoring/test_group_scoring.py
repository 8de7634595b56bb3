"""Completions judged side by side: relative values, whatever the order, and of whom they are said."""

import asyncio
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Message, ToolCall
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Reason, Verdict
from tests.instant_engine import InstantEngine
from tests.preference_engine import Tasteful, answers_in, scores
from tests.unit.workers.scoring.group_setup import (
    GROUP,
    PAIRS,
    PROMPT,
    RUBRIC,
    TEXTS,
    WRITTEN,
    compare,
    judge,
    long_is_good,
    values,
)
from workers.engines.base import EngineRequest, Failure, Reply
from workers.scoring.completions import score, score_group


def test_pairwise_averages_all_pairs_in_both_orders() -> None:
    engine = Tasteful(long_is_good)
    found = compare(engine, PAIRS, TEXTS)
    assert values(found) == [0.0, 0.5, 0.25, 1.0, 0.75]
    assert len(engine.requests) == 20
    orders = [tuple(answers_in(request.shared).values()) for request in engine.requests]
    assert len(set(orders)) == 20
    (verdict,) = found[3]
    assert len(verdict.votes) == 8 and {vote.value for vote in verdict.votes} == {1.0}
    assert {round(vote.answer_mass or 0.0, 6) for vote in (verdict, *verdict.votes)} == {0.9}
    assert verdict.spread == 0 and verdict.usage is not None
    assert verdict.usage.prompt == 8 * 50
    assert sum(v[0].usage.prompt for v in found if v[0].usage) == 20 * 100


def test_pairwise_reports_disagreeing_orders_and_keeps_votes() -> None:
    found = compare(Tasteful(long_is_good, pull=0.8), PAIRS, ["a", "bbb", "cc"])
    for (verdict,) in found:
        assert verdict.detail == "the two orders disagree in 2 of 2 pairs"
        assert [re.sub(" [0-9a-f]{12}$", "", vote.by) for vote in verdict.votes] == ["shown before", "shown after"] * 2
        assert verdict.spread is not None and verdict.spread > 0.3
    assert values(found) == pytest.approx([0.4, 0.6, 0.5])


def test_groupwise_joins_scores_by_id() -> None:
    engine = Tasteful(long_is_good)
    assert values(compare(engine, GROUP, TEXTS)) == [0.1, 0.3, 0.2, 0.5, 0.4] and len(engine.requests) == 1

    class Backwards(Tasteful):
        def _compare(self, question: Any, shown: dict[str, str]) -> Reply | Failure:
            return super()._compare(question, dict(reversed(shown.items())))

    assert values(compare(Backwards(long_is_good), GROUP, TEXTS)) == [0.1, 0.3, 0.2, 0.5, 0.4]


@pytest.mark.parametrize("asked", [judge(top_n=2), judge("pairwise", top_n=2), judge(group_size=3, top_n=2)])
def test_top_n_sets_best_to_1_and_others_to_0(asked: Judge) -> None:
    rubric = Rubric(criteria=(*RUBRIC.criteria, Criterion(key="rude", text="Is rude.", weight=-1)))
    found = compare(Tasteful(long_is_good), asked, TEXTS, rubric)
    assert [[verdict.value for verdict in verdicts] for verdicts in found] == [[float(n > 2)] * 2 for n in range(5)]
    assert [verdict.detail for verdict in found[3]] != [None, None]  # the score that it was chosen by


def test_groupwise_splits_big_groups_into_overlapping_parts() -> None:
    engine = Tasteful(long_is_good)
    texts = ["x" * n for n in range(1, 11)]
    found = compare(engine, judge(group_size=4), texts)
    shown = [set(answers_in(request.shared).values()) for request in engine.requests]
    assert len(shown) == 4 and all(len(part) == 4 for part in shown)
    assert len(set.intersection(*shown)) == 2
    assert values(found) == pytest.approx([n / 10 for n in range(1, 11)])
    assert {len(verdict.votes) for (verdict,) in found} == {1, 4}


def test_groupwise_part_failure_fails_its_members_only() -> None:
    texts = ["x" * n for n in range(1, 11)]
    well = Tasteful(long_is_good)
    compare(well, judge(group_size=5), texts)
    first, *others = (set(answers_in(request.shared).values()) for request in well.requests)
    lost = first.difference(*others)

    class Fussy(Tasteful):
        async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
            if lost <= set(answers_in(request.shared).values()):
                return [Failure(Reason.TOO_LONG, "it is")]
            return await super().ask(request)

    found = compare(Fussy(long_is_good), judge(group_size=5), texts)
    assert {text for text, (verdict,) in zip(texts, found, strict=True) if verdict.outcome == "failed"} == lost
    assert {verdict.reason for (verdict,) in found} == {None, Reason.TOO_LONG}


@given(st.permutations(["a", "bbb", "cc", "bbb", "ddddd", "", "eeee eee"]), st.sampled_from([PAIRS, GROUP, WRITTEN]))
def test_comparison_is_independent_of_order(texts: list[str], asked: Judge) -> None:
    def biased() -> Tasteful:
        return Tasteful(long_is_good, pull=0.3)

    plain = compare(biased(), asked, sorted(texts))
    found = compare(biased(), asked, texts)
    by_text = dict(zip(sorted(texts), map(without_usage, plain), strict=True))
    assert [by_text[text] for text in texts] == list(map(without_usage, found))


def without_usage(verdicts: list[Verdict]) -> list[Verdict]:
    """Return the verdicts of a completion without its share of tokens, which depends on the order of equal texts."""
    return [verdict.model_copy(update={"usage": None}) for verdict in verdicts]


@pytest.mark.parametrize(
    ("quotes", "verdict", "reason"),
    [
        (["the second text"], "answer A", None), (["the first text"], "answer B", None),
        (["never said by anyone"], "answer A", Reason.NO_EVIDENCE),
        (["never said by anyone"], "tie", Reason.NO_EVIDENCE),
        (["exact words quoted from the answers"], "answer B", Reason.TEMPLATE_COPIED),
        ([], "answer A", Reason.NO_EVIDENCE), ([], "answer B", Reason.NO_EVIDENCE), ([], "tie", None),
    ],
)  # fmt: skip
def test_pairs_need_evidence_where_it_is_required(quotes: list[str], verdict: str, reason: Reason | None) -> None:
    reply = {"criterion": "C1", "rationale": "So it is.", "evidence": quotes, "verdict": verdict}
    asked = Judge.model_validate({**WRITTEN.model_dump(), "require_evidence": True})
    engine = InstantEngine(lambda _: Reply(text=json.dumps(reply)))
    found = compare(engine, asked, ["this is the first text", "this is the second text"])
    assert {one.reason for (one,) in found} == {reason}


@pytest.mark.parametrize("asked", [PAIRS, GROUP])
def test_comparison_of_equal_texts_is_a_tie_without_call(asked: Judge) -> None:
    engine = Tasteful(long_is_good)
    found = compare(engine, asked, ["a", "a"])
    assert values(found) == [0.5, 0.5] and found[0][0].detail
    assert engine.requests == []


@pytest.mark.parametrize("asked", [PAIRS, GROUP])
def test_comparison_of_one_completion_fails_and_keeps_checks(asked: Judge) -> None:
    rubric = Rubric(criteria=(*RUBRIC.criteria, Criterion(key="short", text="Is short.", check=_SHORT)))
    alone = asyncio.run(score(InstantEngine(), asked, rubric, PROMPT, Completion(text="a")))
    for found in (alone, compare(InstantEngine(), asked, ["a"], rubric)[0]):
        assert [(verdict.criterion, verdict.reason) for verdict in found] == [("best", "engine_error"), ("short", None)]
        assert "comparative" in (found[0].detail or "")


_SHORT = Check(name="words", args={"max": 9})


def test_pairwise_ignores_pair_that_fails_in_one_order() -> None:
    class Fussy(Tasteful):
        async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
            if list(answers_in(request.shared).values()) == ["bb", "a"]:
                return [Failure(Reason.TIMEOUT, "slow")]
            return await super().ask(request)

    found = compare(Fussy(long_is_good), PAIRS, ["a", "bb", "ccc"])
    assert values(found) == [0.0, 0.0, 1.0]
    assert {vote.reason for vote in found[0][0].votes} == {None, "timeout"}
    (alone,), (other,) = compare(Fussy(long_is_good), PAIRS, ["a", "bb"])
    assert (alone.reason, other.reason) == (Reason.TIMEOUT, Reason.TIMEOUT) and alone.value is None


def test_comparison_shows_answers_or_trajectories() -> None:
    calls = (ToolCall(name="search", arguments="sky"),)
    said = (
        Message(role="assistant", content="", tool_calls=calls),
        Message(role="tool", content=scores({"A": 1.0, "B": 0.0})),
    )
    group = [Completion(messages=(*said[:n], Message(role="assistant", content="It scatters."))) for n in (2, 0)]

    def shown(asked: Judge) -> list[str]:
        engine = Tasteful(long_is_good)
        asyncio.run(score_group(engine, asked, RUBRIC, PROMPT, group))
        return sorted(text for request in engine.requests for text in answers_in(request.shared).values())

    assert shown(GROUP) == []  # the answers are the same
    whole = shown(judge(traces=True))
    assert whole[0] == "[assistant]\nIt scatters."
    assert whole[1].startswith("[assistant]\n[calls search(sky)]\n\n[tool]\n{")
