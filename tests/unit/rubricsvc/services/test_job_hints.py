from __future__ import annotations

from rubricsvc.cli.hints import in_words

from rubricsvc.core.judge import Judge

SEATS = (Judge(name="a", model="a"), Judge(name="b", model="b"))


def test_voting_is_told_in_words() -> None:
    panel = Judge(name="p", mode="panel", members=SEATS)
    assert in_words({"effective_votes": 1.3333}, panel) == {"effective_votes": "1.33 of 2"}
    assert in_words({"torn": 0.25}, Judge(name="c", model="c", mode="comparative"))["torn"].startswith(
        "25% of the pairs"
    )
    cascade = Judge(name="c", mode="cascade", members=SEATS, band=(0.3, 0.7))
    dear = {"settled_early": 0.5, "saved": -0.6988}
    assert in_words(dear, cascade) == {"settled_early": 0.5, "saved": "nothing (it cost 70% more)"}
    early = in_words({"settled_early": 1.0, "saved_estimate": 0.9}, cascade)
    assert early["saved_estimate"] == "90%, were its last judge's replies as short as the first's"
    assert "--price" in in_words({"settled_early": 1.0}, cascade)["saved"]
    assert "counted no tokens" in in_words({"settled_early": 0.5}, cascade)["saved"]
    told = in_words({"saved": 0.4, "saved_over": 7}, cascade)
    assert told == {"saved": "0.4, over the 7 verdicts of which each call's tokens were counted"}
    assert in_words({"saved": 0.4}, cascade) == {"saved": 0.4}
