"""Checks against a right answer: ``math``, ``json_schema``, ``similarity``, ``string``."""

import sys

import pytest
from pydantic import ValidationError
from rouge_score.rouge_scorer import RougeScorer

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.errors import InvalidError
from workers import checks
from workers.checks.answers import similar
from workers.checks.text import JsonSchema


def verdict(text: str, name: str, *, of_prompt: str | None = None, **args: object) -> Verdict:
    check = Check.model_validate({"name": name, "args": args})
    rubric = Rubric(criteria=(Criterion(key="c", text="t", check=check),))
    (found,) = checks.run(rubric, Prompt.of("q", reference=of_prompt), Completion(text=text))
    return found


@pytest.mark.parametrize(
    ("answer", "text", "value"),
    [
        ("1/2", r"So it is $\frac{2}{4}$.", 1), (r"\frac{1}{2}", r"The answer is \boxed{0.5}", 1),
        ("42", "First 41, in the end 42.", 1), ("42", "43", 0), ("x^2+2x+1", "$(x+1)^2$", 1),
        ("x^2+2x+1", "$(x-1)^2$", 0), ("(1,2)", r"\boxed{(1, 2)}", 1), ("1,000", "1000", 1),
        (r"\{1,2\}", r"$\{2,1\}$", 1), ("-12", "Answer: −１２", 1), ("1.234,5", "Es sind 1.234,5.", 1),
        ("1,5", "$x=1$ or $x=5$", 1), ("0,125", "0.125", 1), ("5", "I do not know.", 0), ("5", "", 0),
        ("2,5", "Es sind 2,5 kg.", 1), ("2,5", "2.6", 0), ("1,234", "1.234", 0), ("12", "答案是12。", 1),
        ("-5", "答えは−5です", 1), ("12", "答案：１２", 1), ("12", "一共有13个", 0),
    ],
)  # fmt: skip
def test_math(answer: str, text: str, value: float) -> None:
    assert verdict(text, "math", answer=answer).value == value
    assert verdict(text, "math", of_prompt=answer).value == value


def test_math_needs_an_answer() -> None:
    assert "`answer`" in (verdict("1", "math").detail or "")


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "p": {"type": "string", "pattern": "^(a+)+$"}},
    "required": ["a"],
}


def test_json_schema() -> None:
    for text, block, value, rationale in [
        ('{"a": 1}', "last", 1, "valid"),
        ('So:\n```json\n{"a": 1}\n```\nDone', "last", 1, "valid"),
        ('So:\n```json\n{"a": 1}\n```\nDone', "whole", 0, "not JSON"),
        ('{"a": "x"}', "last", 0, "$.a: 'x' is not of type 'integer'"),
        ("{}", "last", 0, "$: 'a' is a required property"),
        ("Sorry.", "last", 0, "not JSON"),
        ("[" * 100_000, "last", 0, "not JSON"),
        ('```json\n{}\n```\n```json\n{"a": 1}\n```', "first", 0, "required"),
    ]:
        found = verdict(text, "json_schema", schema=SCHEMA, block=block)
        assert found.value == value and rationale in (found.rationale or "")


def test_json_schema_fails_on_timeout_and_external_references() -> None:
    text = '{"a": 1, "p": "' + "a" * 40 + 'b"}'
    verdict("{}", "json_schema", schema={})
    assert "0.5 s" in (verdict(text, "json_schema", schema=SCHEMA, timeout_s=0.5).detail or "")
    away = verdict("1", "json_schema", schema={"$ref": "http://127.0.0.1:9/schema.json"})
    assert away.reason is Reason.CHECK_ERROR and "Unresolvable" in (away.detail or "")


def test_json_schema_rejects_invalid_schemas() -> None:
    with pytest.raises(ValidationError, match="JSON Schema"):
        JsonSchema.model_validate({"schema": {"type": "whole"}})
    check = Check(name="json_schema", args={"shema": {}})
    with pytest.raises(InvalidError) as caught:
        checks.validate(Rubric(criteria=(Criterion(key="c", text="t", check=check),)))
    assert caught.value.hint == "json_schema takes schema, block, timeout_s"


def test_similarity_rouge_l_equals_rouge_score() -> None:
    one, other = "the cat sat on the mat today", "a cat lay on a mat"
    wanted = RougeScorer(["rougeL"]).score(other, one)["rougeL"].fmeasure
    assert similar(one, other, "rouge_l") == pytest.approx(wanted)


def test_similarity_meteor_matches_stems_only() -> None:
    assert similar("cats sleeping", "cat sleeps", "meteor") > 0.4
    assert similar("a feline rests", "one cat sleeps", "meteor") == 0.0


def test_similarity_takes_the_nearest_reference() -> None:
    assert verdict("the cat", "similarity", references=["a dog", "the cat"]).value == 1
    assert verdict("THE CAT", "similarity", references=["the cat"]).value != 1
    assert verdict("THE CAT", "similarity", references=["the cat"], lower=True).value == 1
    assert verdict("the cat", "similarity", of_prompt="the cat", metric="bleu").outcome == "scored"
    assert verdict("the cat", "similarity").reason is Reason.CHECK_ERROR


def test_string() -> None:
    for text, args, value in [
        ("Yes", {"reference": "Yes"}, 1),
        ("yes", {"reference": "Yes"}, 0),
        (" Yes\n", {"reference": "Yes"}, 0),
        (" Yes\n", {"reference": "Yes", "strip": True}, 1),
        ("No", {"reference": "Yes", "operation": "ne"}, 1),
        ("Yes", {"reference": "Yes", "operation": "ne"}, 0),
        ("Oh Yes!", {"reference": "Yes", "operation": "like"}, 1),
        ("Oh yes!", {"reference": "Yes", "operation": "like"}, 0),
        ("Oh yes!", {"reference": "YES", "operation": "ilike"}, 1),
    ]:
        assert verdict(text, "string", **args).value == value, (text, args)


@pytest.mark.parametrize(
    ("module", "name", "args"),
    [
        ("rapidfuzz", "similarity", {"references": ["a"]}),
        ("sacrebleu", "similarity", {"references": ["a"], "metric": "bleu"}),
        ("langdetect", "language", {"codes": ["en"]}),
        ("nltk.tokenize.destructive", "ifeval",
         {"instruction_id": "change_case:capital_word_frequency",
          "kwargs": {"capital_frequency": 2, "capital_relation": "at least"}}),
    ],
)  # fmt: skip
def test_checks_report_a_missing_package_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, module: str, name: str, args: dict[str, object]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    found = verdict("a", name, **args)
    assert (found.outcome, found.reason) == ("failed", Reason.CHECK_ERROR)
    assert "pip install 'rubricsvc[judging]'" in (found.detail or "")
