"""IFEval's instructions: each with a text that follows and one that does not."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.errors import InvalidError
from workers import checks
from workers.checks.instructions import IFEval, english_sentences, ifeval

PROMPT = Prompt.of("q")
ENGLISH = "this is an ordinary sentence about the weather in the north of england"


def follows(text: str, name: str, *, loose: bool = False, **kwargs: Any) -> bool:
    args = IFEval(instruction_id=name, kwargs=kwargs, loose=loose)
    return bool(ifeval(Completion(text=text), PROMPT, args))


CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("keywords:existence", {"keywords": ["sea", "c++"]}, "The SEA and C++.", "The sea and C."),
    ("keywords:frequency", {"keyword": "a", "frequency": 2, "relation": "at least"}, "A banana", "b a"),
    ("keywords:frequency", {"keyword": "a", "frequency": 2, "relation": "less than"}, "b a", "a a"),
    ("keywords:forbidden_words", {"forbidden_words": ["sea"]}, "The season.", "The Sea."),
    ("keywords:letter_frequency", {"letter": "q", "let_frequency": 1, "let_relation": "less than"}, "abc", "Quite"),
    ("keywords:letter_frequency", {"letter": "#", "let_frequency": 2, "let_relation": "at least"}, "##", "#"),
    ("language:response_language", {"language": "de"}, "Das ist ein deutscher Satz über das Wetter.", ENGLISH),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", "a\n***\n\n***\nb"),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "***\na\n***\nb\n***", "a\n\nb"),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "one two-three", "one two"),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "less than"},
     "Dr. No came.", "It is. It was."),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "So"},
     "a\n\n'so, it goes", "a\n\nsolo"),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] and [b]", "[a] and [b"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\nP. S. more", "Bye. PS more"),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "p.p.s. more", "P.S. more"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n  - b\n**c**", "* a\n* b\n- c"),
    ("detectable_format:constrained_response", {}, "Well: My answer is maybe.", "My answer is perhaps."),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* **b**", "*a* **"),
    ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 2},
     "Section 1 a Section 2 b", "Section 1 a SECTION 2 b"),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', "{'a': 1}"),
    ("detectable_format:title", {}, "<<On seas>>\ntext", "<<  >>\ntext"),
    ("combination:two_responses", {}, "a\n******\nb", "a\n******\na"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say it."}, "say it. Yes.", "Yes. Say it."),
    ("startend:end_checker", {"end_phrase": "The end."}, 'So. "the end."', "The end. Not."),
    ("startend:quotation", {}, ' "all" ', '"'),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"},
     "THE well-known UN", "The UN"),
    ("change_case:english_capital", {}, ENGLISH.upper(), ENGLISH),
    ("change_case:english_lowercase", {}, ENGLISH, ENGLISH.capitalize()),
    ("punctuation:no_comma", {}, "a; b", "a, b"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kwargs", "good", "bad"), CASES, ids=[case[0] for case in CASES])
def test_instructions(name: str, kwargs: dict[str, Any], good: str, bad: str) -> None:
    assert follows(good, name, **kwargs) and not follows(bad, name, **kwargs)
    assert not follows(" \n", name, **kwargs)


@settings(deadline=None)
@given(text=st.text() | st.text(alphabet="aA .?!*-#<>[]()\"'\n1猫"))
def test_instructions_decide_any_text(text: str) -> None:
    for name, kwargs, *_ in CASES:
        assert follows(text, name, **kwargs) in (True, False), name


def test_ifeval_loose_ignores_first_and_last_line_and_asterisks() -> None:
    text = "Sure! Here it is, as asked:\n**quiet** and small\nI hope, this helps"
    assert not follows(text, "punctuation:no_comma") and follows(text, "punctuation:no_comma", loose=True)
    assert follows("*so* it is", "combination:repeat_prompt", loose=True, prompt_to_repeat="so it is")
    assert not follows("no\nno\nno", "combination:repeat_prompt", loose=True, prompt_to_repeat="so it is")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"instruction_id": "custom:none"}, "'custom:none'"),
        ({"instruction_id": "punctuation:no_commas"}, "punctuation:no_comma?"),
        ({"instruction_id": "length_constraints:number_words", "kwargs": {"num_words": 3}}, "kwargs.relation: "),
        ({"instruction_id": "punctuation:no_comma", "kwargs": {"n": 3}}, "kwargs.n: "),
        (
            {"instruction_id": "detectable_content:number_placeholders", "kwargs": {"num_placeholders": 2.5}},
            "kwargs.num_placeholders",
        ),
        (
            {"instruction_id": "keywords:frequency", "kwargs": {"keyword": "a", "frequency": 1, "relation": "around"}},
            "'around'; keywords:frequency takes keyword, frequency, relation",
        ),
    ],
)
def test_ifeval_rejects_invalid_arguments(args: dict[str, Any], message: str) -> None:
    rubric = Rubric(criteria=(Criterion(key="c", text="t", check=Check(name="ifeval", args=args)),))
    with pytest.raises(InvalidError) as caught:
        checks.validate(rubric)
    assert message in str(caught.value) and caught.value.path.startswith("criteria.0.check.args")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Dr. No came. He left.", ["Dr. No came.", "He left."]),
        ("One.Two", ["One.Two"]),
        ("It ended at 5 p.m. and then it rained.", ["It ended at 5 p.m. and then it rained."]),
        ("", []),
    ],
)
def test_english_sentences(text: str, found: list[str]) -> None:
    assert english_sentences(text) == found
