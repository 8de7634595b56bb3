"""What is part of a question, and what is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from rubricsvc.core.judge import Calibration, Comparison, Curve, Judge, Voting
from rubricsvc.core.prompt import Completion
from rubricsvc.core.rubric import Check, Criterion, CustomPrompt, Group, Numeric, Rubric, Turn
from workers import judges
from workers.checks import CHECKS
from workers.scoring.completions import group_questions, questions_of

JUDGE = Judge(name="j", model="m", engine="instant")
PAIR_CALLS = Judge(name="w", model="m", engine="instant", mode="written", criteria_per_call=2)
COMPARE = Judge(name="c", model="m", mode="comparative")
A, B, C = (Criterion(key=key, text=f"Says {key}.") for key in "abc")
SHORT = Criterion(key="short", text="Is short.", check=Check(name="words", args={"max": 9}))
CUSTOM = Criterion(
    key="custom",
    text="Fits.",
    custom_prompt=CustomPrompt(turns=(Turn(role="user", content="Fits?"),), labels=("y", "n"), passing=("y",)),
)
RUBRIC = Rubric(criteria=(A, B, SHORT, CUSTOM))


@pytest.fixture(autouse=True)
def _no_cache() -> Iterator[None]:
    questions_of.cache_clear()
    yield
    questions_of.cache_clear()


def changed(criterion: Criterion, **fields: Any) -> Criterion:
    return criterion.model_copy(update=fields)


def asked(rubric: Rubric, judge: Judge = JUDGE) -> Mapping[str, str]:
    return questions_of(rubric, judge).fingerprints


def differing(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    return {key for key in before if before[key] != after[key]}


def test_question_does_not_hold_what_only_decides_the_reward() -> None:
    for judge in [JUDGE, PAIR_CALLS, COMPARE]:
        for change in [{"weight": -3.0}, {"required": True}, {"tags": ("x",)}, {"group": ("g",)}]:
            groups = (Group(path=("g",), weight=1.0),)
            after = Rubric(
                criteria=tuple(changed(criterion, **change) for criterion in RUBRIC.criteria),
                groups=groups,
                min_coverage=0.5,
                formula="tree" if "group" in change else RUBRIC.formula,
            )
            assert asked(after, judge) == asked(RUBRIC, judge)


def test_question_does_not_hold_the_key() -> None:
    after = Rubric(criteria=(changed(A, key="z"), *RUBRIC.criteria[1:]))
    assert list(asked(after).values()) == list(asked(RUBRIC).values())


def test_question_holds_what_the_judge_sees() -> None:
    for change in [{"text": "Says so."}, {"scale": Numeric()}, {"reference": "so"}, {"passages": ("so",)}]:
        after = Rubric(criteria=(changed(A, **change), *RUBRIC.criteria[1:]))
        assert differing(asked(RUBRIC), asked(after)) == {"a"}


def test_readout_question_is_independent_of_its_neighbours() -> None:
    assert asked(Rubric(criteria=(C, B, A)))["a"] == asked(Rubric(criteria=(A,)))["a"]


def test_written_question_holds_the_call_that_it_shares() -> None:
    before, after = Rubric(criteria=(A, B, C)), Rubric(criteria=(A, changed(B, text="Says more."), C))
    assert differing(asked(before, PAIR_CALLS), asked(after, PAIR_CALLS)) == {"a", "b"}
    appended = Rubric(criteria=(A, B, changed(C, key="d"), C))
    assert differing(asked(Rubric(criteria=(A, B)), PAIR_CALLS), asked(appended, PAIR_CALLS)) == set()


def test_written_questions_of_equal_text_in_one_call_differ() -> None:
    twins = Rubric(criteria=(A, changed(A, key="again")))
    assert len(set(asked(twins, PAIR_CALLS).values())) == 2
    assert len(set(asked(twins).values())) == 1, "a readout asks the same twice"


def test_comparative_question_holds_the_group_and_its_checks_do_not() -> None:
    here, there = [Completion(text="a"), Completion(text="b")], [Completion(text="a"), Completion(text="c")]
    before, after = group_questions(RUBRIC, COMPARE, here), group_questions(RUBRIC, COMPARE, there)
    assert differing(before.fingerprints, after.fingerprints) == {"a", "b"}
    assert group_questions(RUBRIC, COMPARE, here[::-1]) == before
    assert group_questions(RUBRIC, JUDGE, here) == group_questions(RUBRIC, JUDGE, there)


def test_question_is_another_where_reasoning_is_hidden() -> None:
    plain, thinking = Completion(text="Yes."), Completion(text="<think>No?</think>Yes.")
    apart = Completion.model_validate({"role": "assistant", "content": "Yes.", "reasoning": "No?"})
    whole = RUBRIC.model_copy(update={"reasoning_marks": ()})
    for judge in (JUDGE, PAIR_CALLS):
        assert group_questions(RUBRIC, judge, [plain]) == questions_of(RUBRIC, judge)
        assert group_questions(whole, judge, [thinking]) == questions_of(RUBRIC, judge)
        assert group_questions(whole, judge, [apart]) != group_questions(RUBRIC, judge, [apart])
        hidden = group_questions(RUBRIC, judge, [thinking]).fingerprints
        assert differing(asked(RUBRIC, judge), hidden) == set(asked(RUBRIC))
    assert group_questions(RUBRIC, COMPARE, [plain, thinking]) != group_questions(whole, COMPARE, [plain, thinking])


def test_check_question_is_shared_by_judges_and_holds_arguments_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(RUBRIC)["short"] == asked(RUBRIC, PAIR_CALLS)["short"] == asked(RUBRIC, COMPARE)["short"]
    other = Rubric(criteria=(changed(SHORT, check=Check(name="words", args={"max": 9, "min": None})),))
    assert asked(other)["short"] != asked(RUBRIC)["short"], "null is an argument too"
    before, words = asked(RUBRIC), CHECKS["words"]
    monkeypatch.setitem(CHECKS, "words", replace(words, version=words.version + 1))
    questions_of.cache_clear()
    assert differing(before, asked(RUBRIC)) == {"short"}


def test_custom_question_holds_its_turns_and_not_the_text() -> None:
    assert CUSTOM.custom_prompt is not None
    other = CUSTOM.custom_prompt.model_copy(update={"turns": (Turn(role="user", content="Does it fit?"),)})
    model = CUSTOM.custom_prompt.model_copy(update={"model": "gpt-9"})
    before = asked(Rubric(criteria=(CUSTOM,)))
    assert asked(Rubric(criteria=(changed(CUSTOM, text="Is apt.", custom_prompt=model),))) == before
    assert asked(Rubric(criteria=(changed(CUSTOM, custom_prompt=other),))) != before


def test_question_holds_the_judge_but_not_its_name() -> None:
    others: list[dict[str, Any]] = [
        {"model": "n"},
        {"mode": "written"},
        {"template": "readout_documents"},
        {"template": "nonsense"},
        {"threshold": 0.5},
        {"sampling": JUDGE.sampling.model_copy(update={"seed": 7})},
    ]
    found = [asked(RUBRIC)["a"], *(asked(RUBRIC, JUDGE.model_copy(update=other))["a"] for other in others)]
    assert len(set(found)) == len(found)
    assert asked(RUBRIC, JUDGE.model_copy(update={"name": "other"})) == asked(RUBRIC)


@pytest.mark.parametrize("mode", ["readout", "written"])
def test_question_holds_the_version_of_the_mode(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = JUDGE.model_copy(update={"mode": mode})
    before = asked(RUBRIC, judge)
    monkeypatch.setattr(judges.MODES[mode], "VERSION", "another")
    questions_of.cache_clear()
    assert differing(before, asked(RUBRIC, judge)) == {"a", "b", "custom"}


def test_calibrated_question_holds_the_first_tag() -> None:
    """The tag chooses the curve, and the curve decides the value."""
    curves = Calibration(families={"fact": Curve(method="platt", slope=2.0)})
    tagged = Rubric(criteria=(changed(A, tags=("fact",)), B))
    assert differing(asked(Rubric(criteria=(A, B))), asked(tagged)) == set()
    judge = JUDGE.model_copy(update={"calibration": curves})
    assert differing(asked(Rubric(criteria=(A, B)), judge), asked(tagged, judge)) == {"a"}


def test_panel_question_is_its_members_and_their_rule() -> None:
    panel = Judge(name="p", mode="panel", members=(JUDGE, PAIR_CALLS))
    before = asked(RUBRIC, panel)
    assert differing(before, asked(Rubric(criteria=(changed(A, weight=9.0), *RUBRIC.criteria[1:])), panel)) == set()
    changed_b = Rubric(criteria=(A, changed(B, text="Says more."), *RUBRIC.criteria[2:]))
    assert differing(before, asked(changed_b, panel)) == {"a", "b"}, "the written member sees both in one call"
    strict = panel.model_copy(update={"voting": Voting(rule="min")})
    assert differing(before, asked(RUBRIC, strict)) == {"a", "b", "custom"}
    pairs = COMPARE.model_copy(update={"comparison": Comparison(kind="pairwise")})
    assert asked(RUBRIC, pairs)["a"] not in (before["a"], asked(RUBRIC, COMPARE)["a"])
