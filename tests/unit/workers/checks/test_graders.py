"""The checks that OpenAI's string_check, text_similarity and python graders are."""

from __future__ import annotations

from typing import Any

import pytest

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.formats.openai_grader import parse
from rubricsvc.graders.model import rubric_of
from workers import checks

ITEM = {"answer": "Paris", "rows": [3, 4]}


def found(text: str, **grader: Any) -> Verdict:
    rubric = rubric_of(parse({"name": "g", **grader}))
    checks.validate(rubric)
    (verdict,) = checks.run(rubric, Prompt.of("?", item=ITEM), Completion(text=text))
    return verdict


def compared(operation: str, text: str, reference: str = "{{item.answer}}") -> float | None:
    fields = {"input": "{{sample.output_text}}", "reference": reference, "operation": operation}
    return found(text, type="string_check", **fields).value


def test_string_check() -> None:
    assert [compared("eq", text) for text in ("Paris", "paris", "Paris ")] == [1, 0, 0]
    assert [compared("ne", text) for text in ("Paris", "paris")] == [0, 1]
    assert [compared("like", text) for text in ("It is Paris.", "It is PARIS.")] == [1, 0]
    assert [compared("ilike", text) for text in ("It is PARIS.", "Rome")] == [1, 0]
    assert compared("eq", '{"n": 4}', "{{sample.output_text}}") == 1


def test_text_similarity() -> None:
    fields = {"type": "text_similarity", "input": "{{sample.output_text}}", "reference": "{{item.answer}}"}
    assert found("Paris", evaluation_metric="fuzzy_match", **fields).value == 1
    near = found("Pariss", evaluation_metric="rouge_l", **fields)
    assert near.value == 0 and near.rationale == "rouge_l 0.0000"
    assert 0.5 < (found("Pari", evaluation_metric="fuzzy_match", **fields).value or 0) < 1


@pytest.mark.parametrize("metric", ["fuzzy_match", "meteor", "rouge_l"])
def test_text_similarity_rejects_texts_that_are_too_long(metric: str) -> None:
    fields = {"input": "{{sample.output_text}}", "reference": "{{sample.output_text}}", "evaluation_metric": metric}
    verdict = found("a b " * 300_000, type="text_similarity", **fields)
    assert verdict.reason == Reason.CHECK_ERROR and f"too many for {metric}" in (verdict.detail or "")


@pytest.mark.parametrize(
    ("template", "reason", "why"),
    [
        ("{{item.question}}", Reason.NO_VARIABLE, "item.question"),
        ("{{sample.output_json.a}}", Reason.NOT_JSON, "sample.output_json"),
    ],
)
def test_string_check_fails_on_a_missing_variable(template: str, reason: Reason, why: str) -> None:
    verdict = found("Paris", type="string_check", input=template, reference="x", operation="eq")
    assert (verdict.value, verdict.reason) == (None, reason)
    assert why in (verdict.detail or "")
