from __future__ import annotations

import pytest
from pydantic import ValidationError

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from workers import checks
from workers.checks.markdown import blocks, pick, without_blocks
from workers.checks.structure import Language


def verdict(text: str, name: str, **args: object) -> Verdict:
    check = Check.model_validate({"name": name, "args": args})
    rubric = Rubric(criteria=(Criterion(key="c", text="t", check=check),))
    (found,) = checks.run(rubric, Prompt.of("q"), Completion(text=text))
    return found


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
        (TABLE, {}, 1),
        (f"Text\n\n{TABLE}\nText\n\n{TABLE}", {"min": 2, "max": 2, "partial": False}, 1),
        (TABLE, {"columns": 3}, 0),
        (TABLE, {"rows": 2}, 1),
        (TABLE, {"rows": 3}, 0),
        ("a | b\n--|--\n1 | 2", {}, 1),
        ("a | b\n--|--|--\n1 | 2", {}, 0),
        ("a | b\n1 | 2", {}, 0),
        (f"```\n{TABLE}```", {}, 0),
        ("---\n---\n---", {}, 0),
        ("|a|b|\n | :-: |\t--: | \n|1|2|", {}, 1),
        ("a|b\n-|-|\n1|2", {}, 1),
        ("a|b\n-|-||\n1|2", {}, 0),
        ("a|b\n-|-\n-|-\n1|2\n\n1|2", {"min": 1, "max": 1, "partial": False, "rows": 2}, 1),
    ]:
        assert verdict(text, "tables", **args).value == value, (text, args)


def test_format_fails_on_yaml_over_the_limits() -> None:
    for text in ["[" * 100_000, '{"a":' * 65, "x: " + "y" * 250_000]:
        found = verdict(text, "format", kind="yaml")
        assert (found.outcome, found.reason) == ("failed", "check_error")
        assert "YAML" in (found.detail or "")


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
        ('{"a": [1]}', "json", 1),
        ('So:\n```json\n{"a": 1}\n```', "json", 1),
        ("{'a': 1}", "json", 0),
        ("[" * 100_000, "json", 0),
        ("a: 1\nb: [2]", "yaml", 1),
        ("```yml\n- a\n- b\n```", "yaml", 1),
        ("just words", "yaml", 0),
        ("a: [1", "yaml", 0),
        ("a,b\n1,2", "csv", 1),
        ("a,b\n1", "csv", 0),
        ("a\nb", "csv", 0),
        ("", "csv", 0),
        ("<a><b/></a>", "xml", 1),
        ("<a><b></a>", "xml", 0),
        ('<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>', "xml", 0),
        ("```\nx\n```", "code", 1),
        ("```\n\n```", "code", 0),
        ("x", "code", 0),
        ("Plain words. 3 * 4 - 5.", "plain", 1),
        ("# Head", "plain", 0),
        ("Some **bold** words", "plain", 0),
        ("- item", "plain", 0),
    ]:
        assert verdict(text, "format", kind=kind).value == value, (text, kind)


def test_language() -> None:
    for text, codes, value in [
        ("The weather in the north of England is usually rather wet.", ["en"], 1),
        ("Das Wetter im Norden ist meistens ziemlich nass.", ["en", "de"], 1),
        ("Das Wetter im Norden ist meistens ziemlich nass.", ["en"], 0),
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
    assert [(block.language, block.text) for block in blocks(FENCED)] == [
        ("python", "x"), ("", "y\n```"), ("json", "z")
    ]  # fmt: skip
    assert without_blocks(FENCED) == "a\nb"


def test_pick_selects_blocks() -> None:
    for which, languages, picked in [
        ("last", ("python",), "x"),
        ("last", ("json",), "z"),
        ("last", ("sql",), "y\n```"),
        ("first", ("python", "json"), "x"),
        ("all", ("python", "json"), "x\n\nz"),
        ("whole", ("python",), FENCED),
    ]:
        assert pick(FENCED, which, languages) == picked, (which, languages)


def test_pick_falls_back_to_the_whole_text() -> None:
    assert pick("x = 1", "last", ("python",)) == "x = 1"
    assert pick("```sh\nls\n```", "last", ("python",)) == "```sh\nls\n```"
