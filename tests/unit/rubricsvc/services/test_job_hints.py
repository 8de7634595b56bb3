"""Which failures are worth a retry."""

from __future__ import annotations

from rubricsvc.core.judge import Judge, Sampling
from rubricsvc.core.verdict import Reason
from rubricsvc.services.jobs import FIXES, failure_hints, split

SEEDED = {"mode": "written", "sampling": Sampling(temperature=0.7, seed=1)}
UNSEEDED = {"mode": "written", "sampling": Sampling(temperature=0.7, seed=None)}


def test_split_keeps_what_would_fail_again_apart() -> None:
    for reason, fields, again in [
        ("unavailable", {}, True),
        ("no_answer", {}, False),
        ("engine_error", {}, False),
        ("unparseable", SEEDED, False),
        ("unparseable", UNSEEDED, True),
        ("template_copied", {"mode": "written"}, False),
        ("too_long", UNSEEDED, False),
        ("refused", UNSEEDED, False),
    ]:
        judge = Judge(name="j", model="m", **fields)
        may, lasting = split({reason: 3}, judge)
        assert (may, lasting) == (({reason: 3}, {}) if again else ({}, {reason: 3}))
        hints = "\n".join(failure_hints({reason: 3}, judge, 7, null_coverage=0.95))
        assert ("jobs retry 7` asks again" in hints) == again
        assert ("jobs rescore 7 --min-coverage 0.8`" in hints) == (not again)


def test_fixes_cover_every_reason_without_placeholders() -> None:
    assert set(FIXES) == set(Reason)
    assert not any(set("{}") & set(fix) for fix in FIXES.values())
