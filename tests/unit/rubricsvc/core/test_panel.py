import pytest

from rubricsvc.core.judge import Endpoint, Judge, Price, effective_votes, voting_summary
from rubricsvc.core.verdict import Usage, Vote


def cast(**values: float | None) -> list[Vote]:
    return [Vote(by=by, outcome="failed" if v is None else "scored", value=v) for by, v in values.items()]


@pytest.mark.parametrize(
    ("rows", "worth"),
    [
        ([cast(a=0, b=0, c=0), cast(a=1, b=1, c=1), cast(a=None, b=1, c=0)], 3 / (1 + 2 * (1 + 1 + 0.5) / 3)),
        ([cast(a=0, b=0), cast(a=1, b=1)], 1.0),
        ([cast(a=0, b=0), cast(a=0, b=1), cast(a=1, b=0), cast(a=1, b=1)], 2.0),
        ([cast(a=0, b=1), cast(a=1, b=0)], 2.0),
        ([cast(a=1, b=1), cast(a=1, b=0)], None),
        ([], None),
    ],
)
def test_effective_votes_falls_with_agreement(rows: list[list[Vote]], worth: float | None) -> None:
    assert effective_votes(rows) == (None if worth is None else pytest.approx(worth))


def judge(name: str, price: Price | None) -> Judge:
    return Judge(name=name, model="m", endpoint=Endpoint(price=price))


def asked(**tokens: float | None) -> list[Vote]:
    usage = {by: None if n is None else Usage(prompt=n, cached=n / 2) for by, n in tokens.items()}
    return [Vote(by=by, outcome="scored", value=1.0, usage=used) for by, used in usage.items()]


@pytest.mark.parametrize(
    ("prices", "votes", "saved"),
    [
        ((None, None), [asked(a=10), asked(a=10, b=90), asked(a=10), []], 1 - 120 / 270),
        ((None, Price(prompt=1)), [asked(a=10), asked(a=10, b=90)], 1 - 110 / 180),
        ((Price(), Price(prompt=1)), [asked(a=10), asked(a=10, b=90)], 0.5),
        ((Price(prompt=1), Price(prompt=2, cached=0)), [asked(a=10), asked(a=10, b=10)], -0.5),
        ((None, None), [asked(a=10, b=10)], -1.0),
    ],
)
def test_voting_summary_of_a_cascade_has_its_saving(
    prices: tuple[Price | None, Price | None], votes: list[list[Vote]], saved: float
) -> None:
    members = tuple(judge(name, price) for name, price in zip("ab", prices, strict=True))
    cascade = Judge(name="c", mode="cascade", members=members, band=(0.3, 0.7))
    found = voting_summary(cascade, votes)
    assert found["saved"] == pytest.approx(saved, abs=1e-4)
    assert found["resolved_early"] == round(sum(len(v) == 1 for v in votes) / sum(map(bool, votes)), 4)
