"""Each rule on the criteria that were written for it; bench/bench_lint.py has those of the data sets."""

import pytest

from bench.bench_lint import outcomes, own_cases
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.lint import RULES, lint, rules_of

CASES = list(own_cases())


def rubric(*texts: str, **fields: object) -> Rubric:
    criteria = [Criterion.model_validate({"key": f"c{n}", "text": text, **fields}) for n, text in enumerate(texts, 1)]
    return Rubric(criteria=tuple(criteria))


def found(given: Rubric, prompt: Prompt | None = None) -> set[tuple[str, str | None]]:
    return {(one.rule, one.criterion) for one in lint(given, prompt)}


@pytest.mark.parametrize("rule", RULES)
def test_rule_reaches_its_precision_and_recall(rule: str) -> None:
    counts = outcomes(CASES, rule)
    assert counts["tp"] >= 0.8 * (counts["tp"] + counts["fp"]) > 0
    assert counts["tp"] >= 0.6 * (counts["tp"] + counts["fn"]) > 0


def test_own_criteria_are_two_hundred() -> None:
    assert len([case for case in CASES if case.key]) >= 200


def test_rule_is_explained() -> None:
    for rule in RULES.values():
        texts = [getattr(rule, name) for name in ("summary", "why", "fix", "bad", "good")]
        assert all(texts) and len(set(texts)) == len(texts)


def test_lint_sorts_by_severity_and_criterion() -> None:
    given = rubric("Does not name the dose.", "Says that it is {city}.", "Omits the date.", "Fails to name {name}.")
    severities = [one.severity for one in lint(given)]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)
    assert [one.criterion for one in lint(given) if one.rule == "unknown-placeholder"] == ["c2", "c4"]


def test_lint_leaves_the_text_of_checks_and_custom_prompts_alone() -> None:
    checked = Criterion.model_validate({"key": "a", "text": "Good {x} TODO.", "check": {"name": "words", "args": {}}})
    assert lint(Rubric(criteria=(checked,))) == []


def test_lint_is_silent_about_other_languages() -> None:
    assert lint(rubric("回答应当准确并且完整。", "Nennt die Ursache und empfiehlt eine Behandlung.")) == []


def test_rules_of_selects_and_rejects() -> None:
    assert [one.name for one in rules_of(["sign"])] == ["sign"]
    assert "sign" not in [one.name for one in rules_of(ignored=["sign"])]
    assert {one.severity for one in rules_of(severity="warning")} == {"error", "warning"}
    for names in ({"names": ["sing"]}, {"ignored": ["sing"]}):
        with pytest.raises(InvalidError) as caught:
            rules_of(**names)  # type: ignore[arg-type]
        assert caught.value.path == "rule"


def test_near_duplicate_names_both() -> None:
    given = rubric("Names the melting point of gold.", "States the melting point of gold.")
    findings = lint(given)
    assert [(one.rule, one.criterion) for one in findings] == [("near-duplicate", "c1"), ("near-duplicate", "c2")]


def test_near_duplicate_compares_each_word_with_few_criteria() -> None:
    """A hundred thousand criteria of one template are compared with some, and not with each other."""
    texts = [f"Names the harbour of city {n} and its founder." for n in range(3000)]
    given = rubric(*texts, texts[0])
    assert {one.criterion for one in lint(given, rules=[RULES["near-duplicate"]])} == {"c1", "c3001"}


@pytest.mark.parametrize(
    "text", ["a " * 50_000, "a, " * 50_000, "not only " * 20_000, "if x, " * 30_000, "(" * 100_000]
)
def test_lint_reads_long_texts(text: str) -> None:
    assert {one.rule for one in lint(rubric(text + "and"))} <= set(RULES)
