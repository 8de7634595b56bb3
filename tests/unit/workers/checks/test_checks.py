import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import yaml
from pydantic import ValidationError

from rubricsvc.core.prompt import Completion, Message, Prompt, ToolCall
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError
from tests.graded import found
from workers import checks
from workers.checks import CHECKS, Args, CheckType, run
from workers.checks.answers import Grader, Metric
from workers.checks.code import Code, Mark


def rubric(*named: tuple[str, dict[str, object]]) -> Rubric:
    return Rubric(
        criteria=tuple(
            Criterion(key=f"k{n}", text="t", check=Check.model_validate({"name": name, "args": args}))
            for n, (name, args) in enumerate(named)
        )
    )


@pytest.fixture
def answers() -> Iterator[dict[str, object]]:
    """A check named ``odd`` that returns or raises what the test puts in."""
    chosen: dict[str, object] = {}

    def odd(completion: Completion, prompt: Prompt, args: Args) -> float:
        if isinstance(chosen["gives"], BaseException):
            raise chosen["gives"]
        return chosen["gives"]  # type: ignore[return-value]

    CHECKS["odd"] = CheckType(3, Args, odd)
    yield chosen
    del CHECKS["odd"]


@pytest.mark.parametrize("gives", [ValueError("no"), SystemExit(1), math.nan, 1.5, -0.1, None, "high"], ids=repr)
def test_run_isolates_a_failing_check(answers: dict[str, object], gives: object) -> None:
    answers["gives"] = gives
    found = checks.run(rubric(("odd", {}), ("words", {"max": 9})), Prompt.of("q"), Completion(text="a"))
    expected = [("failed", Reason.CHECK_ERROR), ("scored", None)]
    assert [(verdict.outcome, verdict.reason) for verdict in found] == expected
    assert (found[0].detail or "").startswith("odd: ")


def test_run_propagates_keyboard_interrupt(answers: dict[str, object]) -> None:
    answers["gives"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        checks.run(rubric(("odd", {})), Prompt.of("q"), Completion(text="a"))


def test_run_skips_settled_criteria() -> None:
    found = checks.run(
        rubric(("words", {"max": 9}), ("words", {"min": 9})), Prompt.of("q"), Completion(text="a"), answered={"k0"}
    )
    assert [verdict.criterion for verdict in found] == ["k1"]


@pytest.mark.parametrize(
    ("name", "args", "path", "message"),
    [
        ("regex", {"patern": "a"}, "criteria.1.check.args.patern", "'pattern'"),
        ("nonsense", {}, "criteria.1.check.name", "'nonsense'"),
        ("words", {}, "criteria.1.check.args", "min, max"),
        ("words", {"min": 5, "max": 3}, "criteria.1.check.args", "(5)"),
        ("words", {"min": "many"}, "criteria.1.check.args.min", "integer"),
        ("words", {"maximum": 5}, "criteria.1.check.args.maximum", "'max'"),
        ("contains", {"terms": []}, "criteria.1.check.args.terms", "at least 1"),
        ("contains", {"terms": [""]}, "criteria.1.check.args.terms.0", "1"),
        ("contains", {"terms": ["a"], "mode": "some"}, "criteria.1.check.args.mode", "'any'"),
        ("regex", {"pattern": "(a"}, "criteria.1.check.args.pattern", "regular expression"),
        ("distinct", {"n": 0}, "criteria.1.check.args.n", "1"),
    ],
)
def test_validate_and_run_report_an_invalid_check(name: str, args: dict[str, object], path: str, message: str) -> None:
    bad = rubric(("words", {"max": 9}), (name, args))
    with pytest.raises(InvalidError, match="k1") as caught:
        checks.validate(bad)
    assert message in str(caught.value) and caught.value.path == path
    assert caught.value.hint
    found = checks.run(bad, Prompt.of("q"), Completion(text="a"))
    assert [verdict.reason for verdict in found] == [None, Reason.CHECK_ERROR]


TEXT = (Path(__file__).resolve().parents[4] / "docs" / "checks.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    part = TEXT.partition(heading)[2].partition("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if "| `" in line[:3]]


def test_docs_list_every_check_with_its_arguments() -> None:
    said = {}
    for names, arguments, _ in rows("# Checks"):
        outside = re.sub(r"\([^)]*\)", "", arguments)
        for name in re.findall(r"`(\w+)`", names):
            assert name not in said
            said[name] = {part.split("`")[1] for part in re.split(r", | or ", outside) if part.startswith("`")}
    fields = {name: check.args.model_fields for name, check in CHECKS.items()}
    assert said == {name: {of.alias or field for field, of in found.items()} for name, found in fields.items()}


def test_docs_defaults_match_the_code() -> None:
    for names, arguments, _ in rows("# Checks"):
        for name in re.findall(r"`(\w+)`", names):
            for field, said in re.findall(r"`(\w+)` = (`\w+`|[\w.]+|\[[^]]*\])", arguments):
                default = CHECKS[name].args.model_fields[field].get_default(call_default_factory=True)
                assert yaml.safe_load(said.strip("`")) == (list(default) if isinstance(default, tuple) else default)


def test_docs_list_every_mark_and_metric() -> None:
    assert [row[0].strip("`") for row in rows("## Marks of cheating")] == list(get_args(Mark))
    part = TEXT.partition("## Similarity")[2].partition("\n## ")[0]
    ranged = {"rouge_2", "rouge_3", "rouge_4"}  # "`rouge_1` to `rouge_5`"
    assert set(re.findall(r"`([a-z_]+\w*)`", part)) - {"text_similarity"} == set(get_args(Metric)) - ranged


def test_docs_example_is_valid() -> None:
    given = yaml.safe_load(TEXT.partition("```yaml\n")[2].partition("```")[0])["criteria"]
    for number, criterion in enumerate(given):
        ((name, args),) = criterion["check"].items()
        check = Check(name=name, args=args)
        checks.validate(Rubric(criteria=(Criterion(key=f"c{number}", text=criterion["text"], check=check),)))


def value(completion: Completion, name: str, **args: object) -> tuple[float | None, str]:
    rubric = Rubric(criteria=(Criterion(key="k", text="t", check=Check(name=name, args=args)),))
    (verdict,) = run(rubric, Prompt.of("q"), completion)
    return verdict.value, verdict.rationale or verdict.detail or ""


def trace(*queries: str) -> Completion:
    calls = ((ToolCall(name="find", arguments=f'{{"q": "{query}"}}'),) for query in queries)
    return Completion(messages=tuple(Message(role="assistant", content="", tool_calls=call) for call in calls))


def test_loops() -> None:
    assert value(trace("a", "b", "c"), "loops") == (1.0, "nothing repeats")
    found, why = value(trace("x", "a", "a", "a"), "loops")
    assert found == 0.5
    assert "step 2" in why
    assert value(trace("a", "b", "a", "c"), "loops")[0] == 1.0
    assert value(Completion(text="Just an answer."), "loops")[0] == 1.0


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
    assert (verdict.value, verdict.reason) == (None, reason) and why in (verdict.detail or "")


def test_code_rejects_invalid_arguments() -> None:
    for args in (
        {}, {"tests": ["def ("]}, {"tests": "assert ("}, {"tests": ["x"], "cpu_s": 0}, {"tests": ["x\0"]},
        {"tests": " "},
    ):  # fmt: skip
        with pytest.raises(ValidationError):
            Code.model_validate(args)
    for args in ({"source": "x = 1"}, {"source": "def grade(:"}, {"source": "grade = 1", "range": [5, 5]}):
        with pytest.raises(ValidationError):
            Grader.model_validate(args)


def test_code_rejects_tests_with_fixtures() -> None:
    for source in [
        "def test_a(tmp_path): pass",
        "async def test_a(): pass",
        "class TestA:\n    def test_a(self, n): pass",
        "def test_a(*, n): pass",
    ]:
        with pytest.raises(ValidationError):
            Code.model_validate({"tests": source})
