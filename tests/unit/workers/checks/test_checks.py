import math
from collections.abc import Iterator

import pytest

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError
from workers import checks
from workers.checks import CHECKS, Args, CheckType


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
    assert [(verdict.outcome, verdict.reason) for verdict in found] == [
        ("failed", Reason.CHECK_ERROR),
        ("scored", None),
    ]
    assert (found[0].detail or "").startswith("odd: ")


def test_run_propagates_keyboard_interrupt(answers: dict[str, object]) -> None:
    answers["gives"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        checks.run(rubric(("odd", {})), Prompt.of("q"), Completion(text="a"))


def test_run_skips_settled_criteria() -> None:
    found = checks.run(
        rubric(("words", {"max": 9}), ("words", {"min": 9})),
        Prompt.of("q"),
        Completion(text="a"),
        answered={"k0"},
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
    assert message in str(caught.value)
    assert caught.value.path == path
    assert caught.value.hint
    found = checks.run(bad, Prompt.of("q"), Completion(text="a"))
    assert [verdict.reason for verdict in found] == [None, Reason.CHECK_ERROR]
