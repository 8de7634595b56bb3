from __future__ import annotations

from rubricsvc.core.judge import Judge
from rubricsvc.services.job_reports import describe_voting

MEMBERS = (Judge(name="a", model="a"), Judge(name="b", model="b"))


def test_describe_voting_adds_units() -> None:
    panel = Judge(name="p", mode="panel", members=MEMBERS)
    assert describe_voting({"effective_votes": 1.3333}, panel) == {"effective_votes": "1.33 of 2"}
    pairwise = Judge(name="c", model="c", mode="comparative")
    assert describe_voting({"order_disagreement": 0.25}, pairwise)["order_disagreement"].startswith("25%")


def test_describe_voting_says_how_the_saving_of_a_cascade_is_known() -> None:
    cascade = Judge(name="c", mode="cascade", members=MEMBERS, band=(0.3, 0.7))

    assert describe_voting({"saved": 0.4}, cascade) == {"saved": 0.4}
    assert "70%" in describe_voting({"resolved_early": 0.5, "saved": -0.6988}, cascade)["saved"]
    assert "unknown" in describe_voting({"resolved_early": 1.0}, cascade)["saved"]
