"""Is a judge better than chance, by its audit and its passport?"""

from __future__ import annotations

import pytest

from rubricsvc.core.audit import Audit, SuiteResult
from rubricsvc.core.passport import UNTRAINED
from rubricsvc.formats.documents import load_passport
from rubricsvc.stats.intervals import rate
from trainer.preflight import CHANCE, accuracy, judge_checks
from workers.engines.local.weights import PASSPORT_FILE, SHIPPED


def audit(wrongly_met: int, missed: int, n: int = 33) -> Audit:
    suites = (
        SuiteResult(name="plain", measure="met", rate=rate(wrongly_met, n), max_rate=0.2),
        SuiteResult(name="missed", measure="missed", rate=rate(missed, n), max_rate=0.5),
    )
    return Audit(digest="d", fingerprint="f", suites=suites)


def test_accuracy_of_an_audit_says_who_is_above_chance() -> None:
    for wrongly_met, missed, above in [(2, 8, True), (18, 13, False), (33, 0, False), (0, 33, False), (0, 0, True)]:
        found = accuracy(None, "", audit(wrongly_met, missed), None)
        assert found is not None
        assert ((found[0].low or 0.0) > CHANCE) is above
        assert found[0].value == pytest.approx(1 - (wrongly_met + missed) / 66)


def test_accuracy_of_an_audit_covers_the_balanced_accuracy() -> None:
    """Of simulated judges with error rates of 0.3 and 0.4, about 95 % of the intervals hold 0.65."""
    import numpy as np

    draws = np.random.default_rng(0)
    counts = zip(draws.binomial(33, 0.3, 400), draws.binomial(33, 0.4, 400), strict=True)
    found = [accuracy(None, "", audit(int(plain), int(missed)), None) for plain, missed in counts]
    held = [one[0].low < 0.65 < (one[0].high or 0.0) for one in found if one is not None and one[0].low]
    assert 0.92 < sum(map(bool, held)) / 400 < 0.99


def test_accuracy_of_a_passport_tells_the_shipped_judge_from_its_base() -> None:
    passport = load_passport(SHIPPED / PASSPORT_FILE)
    trained, untrained = accuracy(None, "", None, passport), accuracy(None, "", None, passport, UNTRAINED)
    assert trained is not None and (trained[0].low or 0.0) > CHANCE
    assert untrained is not None and (untrained[0].low or 0.0) < CHANCE


def test_accuracy_is_by_the_audit_before_the_passport() -> None:
    check = judge_checks("j", audit=audit(33, 0), passport=load_passport(SHIPPED / PASSPORT_FILE))[0]
    assert (check.name, check.passed, check.refuses) == ("accuracy", False, True)
    assert "audit" in check.value
    assert judge_checks("j")[0].passed is None
