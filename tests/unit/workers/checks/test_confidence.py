"""Confidence is scored against what another check finds."""

from __future__ import annotations

import pytest

from rubricsvc.core.prompt import Completion, Document, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from workers import checks

PROMPT = Prompt.of("q", documents=(Document(id="a", text="A."), Document(id="b", text="B.")))
STATEMENTS = range(0, 101, 10)


def rubric(name: str, **args: object) -> Rubric:
    check = Check.model_validate({"name": "confidence", "args": {"outcome": {"name": name, "args": args}}})
    return Rubric(criteria=(Criterion(key="k", text="t", check=check),))


def verdict(text: str, right: str = "a") -> Verdict:
    return checks.run(rubric("cites_pages", pages=[[right]]), PROMPT, Completion(text=text))[0]


def expected(percent: int, probability: float) -> float:
    """Return the expected value of a statement about a citation that is right with this probability."""
    right, wrong = (verdict(f"So it is [a]. Confidence: {percent} %", page).value or 0.0 for page in "ab")
    return probability * right + (1 - probability) * wrong


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("So it is [a]. Confidence: 100 %", 1.0),
        ("So it is [a]. **Confidence**: 80%.", 0.96),
        ("So it is [b]. My confidence is 80 %.", 0.36),
        ("So it is [a] and [b]. Confidence: 50 %", 1 - (0.5 - 2 / 3) ** 2),
        ("So it is [a]. Confidence: 10 %, no, confidence: 90 %.", 0.99),
        ("So it is [a]. I am confident.", 0.0),
        ("So it is [a]. Confidence: 250 %", 0.0),
        ("", 0.0),
    ],
)
def test_confidence(text: str, value: float) -> None:
    assert verdict(text).value == pytest.approx(value)


@pytest.mark.parametrize("percent", STATEMENTS)
def test_confidence_is_strictly_proper(percent: int) -> None:
    values = {stated: expected(stated, percent / 100) for stated in STATEMENTS}
    best = max(values, key=lambda stated: values[stated])
    assert best == percent
    assert all(values[stated] < values[best] for stated in STATEMENTS if stated != best)


def test_confidence_fails_where_its_outcome_does() -> None:
    found = checks.run(rubric("cites_pages"), PROMPT, Completion(text="So it is [a]. Confidence: 80 %"))[0]
    assert (found.value, found.reason) == (None, "check_error")


@pytest.mark.parametrize(("name", "args"), [("cites_page", {}), ("cites", {"least": 1})])
def test_confidence_rejects_an_invalid_outcome(name: str, args: dict[str, object]) -> None:
    with pytest.raises(InvalidError) as raised:
        checks.validate(rubric(name, **args))
    assert raised.value.path is not None and raised.value.path.startswith("criteria.0.check.args.outcome")
