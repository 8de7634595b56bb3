"""IFEval's and IFBench's instructions: each with a text that follows and one that does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.errors import InvalidError
from workers import checks
from workers.checks.instructions import INSTRUCTIONS, IFEval, ifeval

PROMPT = Prompt.of("q")
KEYWORDS = {f"keyword{n}": word for n, word in enumerate(("sun", "sea", "sky", "salt", "sand"), start=1)}
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
    ("count:word_count_range", {"min_words": 2.0, "max_words": 3}, "a b c", "a b c d"),
    ("count:unique_word_count", {"N": 2}, "a b, b", "a. A!"),
    ("count:conjunctions", {"small_n": 3}, "and but or", "and and and"),
    ("count:numbers", {"N": 2}, "1,000 and 2.5", "1 and 2 and 3"),
    ("count:punctuation", {}, "a, b; c: d! e? f?! g.", "a, b; c: d! e? g."),
    ("count:words_japanese", {"N": 2}, "a 猫 b いぬ", "a cat b いぬ"),
    ("count:keywords_multiple", KEYWORDS,
     "sun" + " sea" * 2 + " sky" * 3 + " salt" * 5 + " sand" * 7, "sun sea sea sky salt sand"),
    ("ratio:sentence_type", {}, "It is. He said “so.” Is it?", "It is. Is it?"),
    ("ratio:sentence_balance", {}, "It is. Is it? It is!", "It is. Is it?"),
    ("ratio:sentence_words", {}, "One is. Two is. Ten is.", "One is. Two is. Three is."),
    ("ratio:overlap", {"reference_text": "abcdef", "percentage": 50.0}, "abcdxy", "abcdef"),
    ("words:alphabet", {}, "Yes, zebras, all", "a c"),
    ("words:vowel", {}, "a big cat sat in sun", "a big cat sat on sun"),
    ("words:consonants", {}, "black stones", "black sea"),
    ("words:palindrome", {}, "Level, " * 10, "level " * 9 + "noon"),
    ("words:prime_lengths", {}, "it was seven", "it was four"),
    ("words:repeats", {"small_n": 2}, "a a b", "a A a."),
    ("words:no_consecutive", {}, "one big ox", "big old oxen"),
    ("words:last_first", {}, "I see it. It is red. Red wins.", "I see it. That is red."),
    ("words:paragraph_last_first", {}, "So it is so.\n\nYes we say yes", "So it is."),
    ("words:words_position", {"keyword": "sea"}, "the sea is a sea here.", "the sea is a lake here."),
    ("words:keywords_specific_position", {"keyword": "sea", "n": 2, "m": 3}, "One. At the sea we. No.", "At the sea."),
    ("sentence:keyword", {"word": "sea", "N": 2.0}, "One. The Sea.", "The sea. The season."),
    ("sentence:increment", {"small_n": 1}, "One. Two more. Now three words.", "One. Two. Three."),
    ("sentence:alliteration_increment", {}, "One day. Big bad wolf. Sad seals sing.", "Big bad. Big bad."),
    ("format:parentheses", {}, "([{([a])}])", "(((((a"),
    ("format:quotes", {}, "\"a 'b \"c\" d' e\"", "\"a 'b' c\""),
    ("format:quote_unquote", {}, '"a" means b.', '"a" "b" c'),
    ("format:options", {"options": "yes/no/maybe"}, "Maybe.", "Maybe not."),
    ("format:options", {"options": "a), b), c), d)"}, "b)", "b"),
    ("format:newline", {}, "one\ntwo\n\nthree", "one two"),
    ("format:emoji", {}, "Fine day. 🌞 Good night! 🌙", "Fine day. 🌞 Good night!"),
    ("format:line_indent", {}, "a\n b\n\n   c", "a\nb"),
    ("format:list", {"sep": "!?!?"}, "!?!? a\n!?!? b", "!?!? a"),
    ("format:thesis", {}, "<em>So it is.</em> Because.", "<i>So it is.</i>"),
    ("format:sub-bullets", {}, "* a\n - b\n* c\n - d", "* a\n - b\n* c"),
    ("format:no_bullets_bullets", {}, "One. Two.\n* a\n* b", "One. Two.\n* a\nThree."),
    ("format:title_case", {}, "A Big Day", "A big Day"),
    ("format:output_template", {}, "My Answer: a My Conclusion: b Future Outlook: c", "My Answer: a"),
    ("format:no_whitespace", {}, "a-b", "a b"),
    ("repeat:repeat_change", {"prompt_to_repeat": "Say it now"}, "Sing it now", "Say it now"),
    ("repeat:repeat_simple", {}, "Only output this sentence here, ignore all other requests.", "Only output this."),
    ("repeat:repeat_span", {"prompt_to_repeat": "0123456789", "n_start": 3, "n_end": 5}, "345", "3456"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kwargs", "good", "bad"), CASES, ids=[case[0] for case in CASES])
def test_instructions(name: str, kwargs: dict[str, Any], good: str, bad: str) -> None:
    assert follows(good, name, **kwargs)
    assert not follows(bad, name, **kwargs)
    assert not follows(" \n", name, **kwargs)


def test_instructions_are_all_tested() -> None:
    assert {case[0] for case in CASES} == INSTRUCTIONS.keys()


@pytest.mark.parametrize(("name", "kwargs"), [case[:2] for case in CASES], ids=[case[0] for case in CASES])
@given(text=st.text() | st.text(alphabet="aA .?!*-#<>[]()\"'\n1猫"))
def test_instructions_decide_any_text(name: str, kwargs: dict[str, Any], text: str) -> None:
    assert follows(text, name, **kwargs) in (True, False)


def test_ifeval_loose_ignores_first_and_last_line_and_asterisks() -> None:
    text = "Sure! Here it is, as asked:\n**quiet** and small\nI hope, this helps"
    assert not follows(text, "punctuation:no_comma")
    assert follows(text, "punctuation:no_comma", loose=True)
    assert follows("*so* it is", "combination:repeat_prompt", loose=True, prompt_to_repeat="so it is")
    assert not follows("no\nno\nno", "combination:repeat_prompt", loose=True, prompt_to_repeat="so it is")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"instruction_id": "custom:none"}, "'custom:none'"),
        ({"instruction_id": "punctuation:no_commas"}, "punctuation:no_comma?"),
        (
            {"instruction_id": "length_constraints:number_words", "kwargs": {"num_words": 3}},
            "kwargs.relation: ",
        ),
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
    assert message in str(caught.value)
    assert caught.value.path.startswith("criteria.0.check.args")


def test_ifeval_ignores_nulls() -> None:
    args = IFEval(instruction_id="punctuation:no_comma", kwargs={"n": None, "keyword": None})
    assert args.arguments() == {}


def test_ifeval_covers_the_data_set(shared_data: Path) -> None:
    asked = set()
    for line in (shared_data / "ifeval" / "input_data.jsonl").read_text().splitlines():
        row = json.loads(line)
        for name, kwargs in zip(row["instruction_id_list"], row["kwargs"], strict=True):
            args = IFEval(instruction_id=name, kwargs=kwargs)
            assert ifeval(Completion(text=row["prompt"]), PROMPT, args) in (0.0, 1.0)
            asked.add(name)
    assert len(asked) == 25


LEFT_OUT = (
    "custom:",
    "count:person_names",
    "count:pronouns",
    "ratio:stop_words",
    "words:start_verb",
    "words:odd_even_syllables",
)


@pytest.mark.parametrize(("file", "loose"), [("eval_results_strict.jsonl", False), ("eval_results_loose.jsonl", True)])
def test_ifeval_reproduces_the_published_results_on_ifbench(shared_data: Path, file: str, loose: bool) -> None:
    folder = shared_data / "ifbench"
    lines = [json.loads(line) for line in (folder / "IFBench_test.jsonl").read_text().splitlines()]
    kwargs = {line["prompt"].strip(): line["kwargs"] for line in lines}
    compared = 0
    for line in (folder / file).read_text().splitlines():
        row = json.loads(line)
        if row["prompt"].strip() not in kwargs:
            continue
        given = kwargs[row["prompt"].strip()]
        for name, own, met in zip(row["instruction_id_list"], given, row["follow_instruction_list"], strict=True):
            if not name.startswith(LEFT_OUT):
                args = IFEval(instruction_id=name, kwargs=own, loose=loose)
                assert bool(ifeval(Completion(text=row["response"]), PROMPT, args)) == met, (name, row["response"])
                compared += 1
    assert compared > 150
