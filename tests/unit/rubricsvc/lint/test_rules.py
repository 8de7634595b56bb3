"""Each rule on the criteria that were written for it; bench/bench_lint.py has those of the data sets."""

from __future__ import annotations

import pytest

from bench.bench_lint import outcomes, own_cases
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.lint import RULES, lint, rules_of
from rubricsvc.lint.rewriting import rewritten

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


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_rule_is_explained(rule: object) -> None:
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


def test_near_duplicate_names_both_and_is_fixable_only_for_copies() -> None:
    given = rubric("Names the melting point of gold.", "States the melting point of gold.")
    findings = lint(given)
    assert [(one.rule, one.criterion, one.fixable) for one in findings] == [
        ("near-duplicate", "c1", False),
        ("near-duplicate", "c2", False),
    ]
    assert all(one.fixable for one in lint(rubric("Names the dose of it.", "Names the dose of it.")))


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


def test_rewritten_merges_copies_and_keeps_what_differs() -> None:
    given = Rubric.model_validate(
        {
            "criteria": [
                {"key": "a", "text": "Names the dose.", "weight": 2},
                {"key": "b", "text": "Names the dose.", "weight": 3},
                {"key": "c", "text": "Names the dose.", "weight": -1},
                {"key": "d", "text": "Names the dose.", "weight": 1, "required": True},
                {"key": "e", "text": "Names the date.", "weight": 0},
                {"key": "f", "text": "It should not fail to na\u200bme the drug."},
                {"key": "g", "text": "Is short.", "weight": 2, "check": {"name": "words", "args": {"max": 9}}},
                {"key": "h", "text": "Is terse.", "weight": 1, "check": {"name": "words", "args": {"max": 9}}},
            ]
        }
    )
    fixed, done = rewritten(given)
    assert [(one.key, one.weight, one.text) for one in fixed.criteria] == [
        ("a", 5.0, "Names the dose."),
        ("c", -1.0, "Names the dose."),
        ("d", 1.0, "Names the dose."),
        ("f", 1.0, "It should name the drug."),
        ("g", 3.0, "Is short."),
    ]
    assert len(done) == 5
    assert rewritten(fixed) == (fixed, [])


def test_rewritten_keeps_copies_where_weights_do_not_add_up() -> None:
    criteria = [{"key": "a", "text": "Names it."}, {"key": "b", "text": "Names it."}]
    for fields in ({"formula": "required_met"}, {"formula": "tree"}):
        given = Rubric.model_validate({"criteria": criteria, **fields})
        assert rewritten(given) == (given, [])


def test_rewritten_leaves_joiners_of_scripts_and_emoji() -> None:
    given = rubric("Names \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 and \U0001f468\u200d\U0001f469.")
    assert (found(given), rewritten(given)) == (set(), (given, []))
    assert found(rubric("Says why\U000e0120."))
