from __future__ import annotations

import pytest
from pydantic import ValidationError

from workers.checks.answers import Grader
from workers.checks.code import Code, SuiteResult


def test_code_rejects_invalid_arguments() -> None:
    for args in (
        {},
        {"tests": ["def ("]},
        {"tests": "assert ("},
        {"tests": ["x"], "cpu_s": 0},
        {"tests": ["x\0"]},
        {"tests": " "},
        {"tests": ["x"], "setup": "this is no Python"},
    ):
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


def test_suite_result_gap_needs_shown_and_hidden_tests() -> None:
    passed, failed = ("a", ""), ("b", "AssertionError")
    assert SuiteResult.of((passed, failed), ()).gap == 0
    assert SuiteResult.of((), (passed,)).gap == 0
    assert SuiteResult.of((passed, passed), (passed, failed)).gap == 0.5
    assert SuiteResult.of((failed,), (passed,)).gap == -1
