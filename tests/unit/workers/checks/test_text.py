import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Reason, Verdict
from workers import checks
from workers.checks import CHECKS
from workers.checks.markdown import blocks, pick
from workers.checks.text import Language

PROMPT = Prompt.of("q")


def verdict(text: str, name: str, **args: object) -> Verdict:
    check = Check.model_validate({"name": name, "args": args})
    rubric = Rubric(criteria=(Criterion(key="c", text="t", check=check),))
    (found,) = checks.run(rubric, PROMPT, Completion(text=text))
    return found


def test_contains() -> None:
    for text, args, value in [
        ("It calls __add__ first.", {"terms": ["__radd__", "__add__"]}, 1),
        ("It calls nothing.", {"terms": ["__radd__", "__add__"]}, 0),
        ("It CALLS", {"terms": ["calls"]}, 1),
        ("It CALLS", {"terms": ["calls"], "case": True}, 0),
        ("a and b", {"terms": ["a", "b"], "mode": "all"}, 1),
        ("a and c", {"terms": ["a", "b"], "mode": "all"}, 0),
        ("x and y", {"terms": ["x", "z"], "mode": "share"}, 0.5),
        ("Great question! So", {"terms": ["great question", "as an AI"], "mode": "none"}, 0),
        ("So", {"terms": ["great question", "as an AI"], "mode": "none"}, 1),
        ("this", {"terms": ["is"]}, 1),
        ("this", {"terms": ["is"], "whole": True}, 0),
        ("what is.", {"terms": ["is"], "whole": True}, 1),
        ("使用Python编程", {"terms": ["Python"], "whole": True}, 1),  # no blanks, no boundary
        ("\n Sure, here", {"terms": ["Sure"], "where": "start"}, 1),
        ("I am sure, here", {"terms": ["Sure"], "where": "start"}, 0),
        ("the end.\n", {"terms": ["end."], "where": "end"}, 1),
        ("the end. Not", {"terms": ["end."], "where": "end"}, 0),
        ("a.b", {"terms": ["a+b", "a?b", "(a"]}, 0),
        ("", {"terms": ["a"]}, 0),
    ]:
        assert verdict(text, "contains", **args).value == value, (text, args)


def test_regex() -> None:
    for text, args, value in [
        ("see PEP 484", {"pattern": r"PEP \d+"}, 1),
        ("see PEP", {"pattern": r"PEP \d+"}, 0),
        ("PEP 1 PEP 2", {"pattern": r"PEP \d+", "count": 3}, 0),
        ("PEP 1 PEP 2", {"pattern": r"PEP \d+", "count": 2}, 1),
        ("see PEP 484", {"pattern": r"PEP \d+", "absent": True}, 0),
        ("“é” \ud800", {"pattern": "é"}, 1),
    ]:
        assert verdict(text, "regex", **args).value == value, (text, args)


def test_regex_fails_on_timeout_and_recovers() -> None:
    found = verdict("a" * 60 + "b", "regex", pattern="(a+)+$", timeout_s=0.2)
    assert (found.outcome, found.reason) == ("failed", Reason.CHECK_ERROR) and "0.2 s" in (found.detail or "")
    assert verdict("a", "regex", pattern="a").value == 1


def test_words() -> None:
    for text, args, value in [
        ("one two three", {"min": 3, "max": 5}, 1),
        ("one two three", {"min": 6}, 0.5),
        ("one two three", {"max": 2}, 0.5),
        ("one two three four five", {"max": 2}, 0),
        ("one two three", {"min": 6, "partial": False}, 0),
        ("", {"min": 1}, 0),
        ("", {"max": 10}, 1),
        ("先把水烧开。Python 3を使います！ - よ", {"min": 13, "max": 13, "partial": False}, 1),  # and no marks
        ("ต้มน้ำ", {"min": 4, "max": 4, "partial": False}, 1),  # letters, without vowel and tone marks
        ("물을 끓입니다 - 네", {"min": 4, "max": 4, "partial": False}, 1),
    ]:
        assert verdict(text, "words", **args).value == value, (text, args)


def test_sentences() -> None:
    for text, count in [
        ("One. Two! Three?", 3), ("Version 3.11 of sys.path is fine.", 1), ("No end", 1),
        ("A heading\n\nA sentence.", 2), ('He said "stop." Then he went.', 2), ("これは文です。はい。", 2),
        ("یہ ایک جملہ ہے۔ کیا؟", 2), ("...", 0), ("", 0),
    ]:  # fmt: skip
        assert verdict(text, "sentences", min=count or 1, max=count or 1, partial=False).value == float(count > 0), text


def test_paragraphs_and_characters() -> None:
    for text, name, args, value in [
        ("a\n\nb\n \n\nc", "paragraphs", {"min": 3, "max": 3, "partial": False}, 1),
        ("a\nb", "paragraphs", {"min": 2}, 0.5),
        ("", "paragraphs", {"min": 1}, 0),
        (" 1234 ", "characters", {"max": 4}, 1),
        ("12345", "characters", {"max": 4}, 0.75),
    ]:
        assert verdict(text, name, **args).value == value, (text, name, args)


def test_distinct() -> None:
    for text, n, value in [
        ("a b c d", 3, 1), ("a b A b", 1, 0.5), ("x x x x x", 2, 0.25), ("a b", 3, 1), ("", 1, 1), ("水水水", 2, 0.5),
    ]:  # fmt: skip
        assert verdict(text, "distinct", n=n).value == value, (text, n)


ARGS: dict[str, dict[str, object]] = {
    "contains": {"terms": ["a", " b"], "mode": "share", "whole": True}, "words": {"min": 3, "max": 4},
    "sentences": {"min": 2, "max": 2}, "distinct": {"n": 2}, "cites": {}, "quotes": {"words": 1, "cited": True},
    "supported": {"words": 1, "overlap": 0.5}, "cites_pages": {"pages": [["a"]]}, "mentions": {"terms": ["a"]},
    "copied": {"max": 0, "run": 2}, "valid_calls": {}, "invented_actions": {}, "paragraphs": {"min": 2},
    "characters": {"max": 9}, "string": {"reference": "a", "operation": "ilike"},
    "headings": {"min": 2, "titles": ["a"]}, "tables": {}, "lists": {}, "format": {"kind": "yaml"},
    "language": {"codes": ["en"]}, "similarity": {"references": ["a b"], "metric": "rouge_1"},
    "ifeval": {"instruction_id": "punctuation:no_comma"},
    "string_check": {"input": "{{sample.output_text}}", "reference": "a", "operation": "ilike"},
    "text_similarity": {"input": "{{sample.output_text}}", "reference": "a b", "metric": "fuzzy_match"}, "loops": {},
    "code_cheating": {"tests": ["assert f('abcd') == 1"]},
}  # fmt: skip
IN_PROCESSES = {"regex", "math", "json_schema", "code", "python"}


@settings(deadline=None)
@given(text=st.text() | st.text(alphabet='ab .[]"“”1\n'))
def test_checks_return_0_to_1_for_any_text(text: str) -> None:
    for name in CHECKS.keys() - IN_PROCESSES:
        assert verdict(text, name, **ARGS[name]).outcome == "scored", name


REPORT = """# Report

## Findings ##
Text.
```
# no heading
- no item
```
### More
- one
  * two
1. three
2) four
"""


def test_headings() -> None:
    for text, args, value in [
        (REPORT, {"min": 3, "max": 3, "partial": False}, 1),
        (REPORT, {"min": 6}, 0.5),
        (REPORT, {"level": 2}, 1),
        (REPORT, {"level": 4}, 0),
        (REPORT, {"titles": ["findings", "Conclusion"]}, 0.5),
        ("#no heading\n    # code", {}, 0),
        ("", {}, 0),
    ]:
        assert verdict(text, "headings", **args).value == value, (text, args)


TABLE = "| a | b |\n|---|:-:|\n| 1 | 2 |\n| 3 | 4 |\n"


def test_tables() -> None:
    for text, args, value in [
        (TABLE, {}, 1), (f"Text\n\n{TABLE}\nText\n\n{TABLE}", {"min": 2, "max": 2, "partial": False}, 1),
        (TABLE, {"columns": 3}, 0), (TABLE, {"rows": 2}, 1), (TABLE, {"rows": 3}, 0), ("a | b\n--|--\n1 | 2", {}, 1),
        ("a | b\n--|--|--\n1 | 2", {}, 0), ("a | b\n1 | 2", {}, 0), (f"```\n{TABLE}```", {}, 0),
        ("---\n---\n---", {}, 0), ("|a|b|\n | :-: |\t--: | \n|1|2|", {}, 1), ("a|b\n-|-|\n1|2", {}, 1),
        ("a|b\n-|-||\n1|2", {}, 0),
        ("a|b\n-|-\n-|-\n1|2\n\n1|2", {"min": 1, "max": 1, "partial": False, "rows": 2}, 1),
    ]:  # fmt: skip
        assert verdict(text, "tables", **args).value == value, (text, args)


def test_format_fails_on_yaml_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.checks.text._YAML_SECONDS", 0.5)
    found = verdict("[" * 100_000, "format", kind="yaml")
    assert (found.outcome, found.reason) == ("failed", "check_error")
    assert "YAML took longer" in (found.detail or "")


def test_lists() -> None:
    for text, args, value in [
        (REPORT, {"min": 4, "max": 4, "partial": False}, 1),
        (REPORT, {"kind": "bullets", "min": 2, "max": 2, "partial": False}, 1),
        (REPORT, {"kind": "numbers", "min": 4}, 0.5),
        ("**bold** and -5\n*it*", {}, 0),
    ]:
        assert verdict(text, "lists", **args).value == value, (text, args)


def test_format() -> None:
    for text, kind, value in [
        ('{"a": [1]}', "json", 1), ('So:\n```json\n{"a": 1}\n```', "json", 1), ("{'a': 1}", "json", 0),
        ("[" * 100_000, "json", 0), ("a: 1\nb: [2]", "yaml", 1), ("```yml\n- a\n- b\n```", "yaml", 1),
        ("just words", "yaml", 0), ("a: [1", "yaml", 0), ("- " * 5000 + "a", "yaml", 0), ('{"a":' * 500, "yaml", 0),
        ("a,b\n1,2", "csv", 1), ("a,b\n1", "csv", 0), ("a\nb", "csv", 0), ("", "csv", 0), ("<a><b/></a>", "xml", 1),
        ("<a><b></a>", "xml", 0), ('<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>', "xml", 0), ("```\nx\n```", "code", 1),
        ("```\n\n```", "code", 0), ("x", "code", 0), ("Plain words. 3 * 4 - 5.", "plain", 1), ("# Head", "plain", 0),
        ("Some **bold** words", "plain", 0), ("- item", "plain", 0),
    ]:  # fmt: skip
        assert verdict(text, "format", kind=kind).value == value, (text, kind)


def test_language() -> None:
    for text, codes, value in [
        ("The weather in the north of England is usually rather wet.", ["en"], 1),
        ("Das Wetter im Norden ist meistens ziemlich nass.", ["en", "de"], 1),
        ("Das Wetter im Norden ist meistens ziemlich nass.", ["en"], 0),
        ("Das Wetter ist meistens nass.\n```\nThis is in English, and it is much longer.\n```", ["de"], 1),
        ("北方的天气通常很潮湿，今天也下雨了。", ["zh"], 1),
        ("12345", ["en"], 0),
        ("", ["en"], 0),
    ]:
        found = [verdict(text, "language", codes=codes) for _ in range(3)]
        assert [one.value for one in found] == [value] * 3
        assert (found[0].rationale or "").startswith("language ")


def test_language_rejects_unknown_codes() -> None:
    for code in ["zz", "EN", "english", "pt-br"]:
        with pytest.raises(ValidationError, match=f"'{code}'.*zh-tw"):
            Language(codes=("en", code))


FENCED = "a\n```python\nx\n```\nb\n~~~\ny\n```\n~~~\n```json\nz"


def test_blocks_yields_fenced_blocks() -> None:
    assert blocks(FENCED) == [
        ("python", "x"), ("", "y\n```"), ("json", "z")
    ]  # fmt: skip


def test_pick_selects_blocks() -> None:
    for which, languages, picked in [
        ("last", ("python",), "x"), ("last", ("json",), "z"), ("last", ("sql",), "y\n```"),
        ("first", ("python", "json"), "x"), ("all", ("python", "json"), "x\n\nz"), ("whole", ("python",), FENCED),
    ]:  # fmt: skip
        assert pick(FENCED, which, languages) == picked, (which, languages)


def test_pick_falls_back_to_the_whole_text() -> None:
    assert pick("x = 1", "last", ("python",)) == "x = 1"
    assert pick("```sh\nls\n```", "last", ("python",)) == "```sh\nls\n```"
