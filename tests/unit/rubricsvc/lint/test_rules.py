"""Each rule on the criteria that were written for it; bench/bench_lint.py has those of the data sets."""

import pytest

from bench.bench_lint import outcomes, own_cases
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.lint import RULES, by_rule, lint, rules_of

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


def test_lint_says_whose_wording_is_not_checked() -> None:
    for texts, language in [
        (["回答应当准确并且完整。", "不超过三句。"], "Chinese"),
        (["原因を述べている。"], "Japanese"),
        (["Называет причину поломки."], "Russian"),
        (["Nomina la causa del guasto e consiglia una cura."], "Italian"),
        (["Mainitsee syyn ja suosittelee hoitoa, jos se on tarpeen."], "Finnish"),
        (["Lorem ipsum dolor sit amet consectetur."], "none that is known"),
        (["Names the cause of the fault.", "La risposta deve essere chiara e non è troppo lunga."], "1 of 2 criteria"),
        (["Names “il nome della rosa e la cosa” as the title."], None),
        (["Names Paris.", "Photosynthesis."], None),
        (["Nennt die Ursache.", "Erwähnt Kalium."], None),
    ]:
        notes = [one.message for one in lint(rubric(*texts)) if one.rule == "unchecked-language"]
        assert len(notes) == (language is not None) and all(language in one for one in notes if language)
        assert all("checked: English, German" in one for one in notes)


def test_rules_without_words_are_applied_to_every_language() -> None:
    given = rubric(
        "Лист：A、B、C、D。", "Называет {city} на карте.", "Называет реку.", "Называет реку.", "- б\n- в\n- г"
    )
    expected = {("two-questions", "c1"), ("unknown-placeholder", "c2"), ("two-questions", "c5")}
    assert found(given) >= expected | {("near-duplicate", "c3"), ("near-duplicate", "c4")}


def test_by_rule_has_errors_then_rare_findings_and_no_rule_about_the_whole_set() -> None:
    texts = {"a": ["Names the cause and lists the tools."], "b": ["Names the dose and warns of ice."]}
    texts |= {
        "c": ["Fails to name x.", "Omits y.", "Writes well."],
        "d": ["Sees {city}.", "Names tea and explains it."],
    }
    placed = [(name, one) for name, criteria in texts.items() for one in lint(rubric(*criteria))]
    first, groups = by_rule(placed, len(texts))
    assert [group[0][1].rule for group in groups] == ["unknown-placeholder", "sign", "vague", "two-questions"]
    assert [(name, one.rule) for name, one in first] == [
        ("d", "unknown-placeholder"),
        ("c", "sign"),
        ("c", "sign"),
        ("c", "vague"),
    ]


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
