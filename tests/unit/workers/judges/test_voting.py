import pytest

from rubricsvc.core.judge import Rule
from rubricsvc.core.rubric import Binary, Criterion, Level, Numeric, Ordinal, Scale
from rubricsvc.core.verdict import Evidence, Reason, Usage, Verdict
from workers.judges.voting import aggregate

CRITERION = Criterion(key="k", text="Says why.")
ORDINAL = Ordinal(
    levels=(Level(label="bad", value=0.1), Level(label="fair", value=0.5), Level(label="good", value=0.9))
)


def scored(value: float, **fields: object) -> Verdict:
    return Verdict.scored("k", value, **fields)


def gathered(*verdicts: Verdict, rule: Rule = "mean", scale: Scale = CRITERION.scale) -> Verdict:
    criterion = CRITERION.model_copy(update={"scale": scale})
    return aggregate(criterion, {f"v{n}": verdict for n, verdict in enumerate(verdicts)}, rule)


@pytest.mark.parametrize(
    ("rule", "scale", "values", "expected"),
    [
        ("mean", Binary(), [0.0, 0.5, 1.0, 1.0], 0.625),
        ("median", Binary(), [0.0, 0.5, 1.0, 1.0], 0.75),
        ("min", Binary(), [0.2, 0.5, 1.0], 0.2),
        ("majority", Binary(), [0.2, 0.6, 0.7], 1.0),
        ("majority", Binary(), [0.5, 0.4, 0.1], 0.0),
        ("majority", ORDINAL, [0.6, 0.55, 0.9], 0.5),
        ("majority", Numeric(), [0.3, 0.3, 0.9], 0.3),
    ],
)
def test_aggregate_applies_each_rule(rule: Rule, scale: Scale, values: list[float], expected: float) -> None:
    assert gathered(*map(scored, values), rule=rule, scale=scale).value == pytest.approx(expected)


def test_aggregate_abstains_without_a_majority_of_all_votes() -> None:
    lost = Verdict.failed("k", Reason.TIMEOUT)
    for votes, agreeing in [
        *(([scored(0.2), scored(0.6)], "1 of 2"), ([scored(0.5), scored(0.5)], "0 of 2")),
        ([scored(1.0), lost], "1 of 2"),
        ([scored(0.0), scored(1.0), lost], "1 of 3"),
        ([scored(0.0), scored(0.0), scored(1.0), Verdict.abstained("k")], "2 of 4"),
    ]:
        verdict = gathered(*votes, rule="majority")
        assert (verdict.outcome, verdict.value) == ("abstained", None)
        assert (verdict.detail or "").startswith(f"no majority: {agreeing} votes agree")
        assert len(verdict.votes) == len(votes)
    assert gathered(scored(1.0), scored(1.0), lost, rule="majority").value == 1.0


def test_aggregate_scores_with_half_of_the_votes() -> None:
    verdict = gathered(scored(0.8), Verdict.failed("k", Reason.TIMEOUT, detail="slow"))
    assert (verdict.outcome, verdict.value, verdict.spread) == ("scored", 0.8, 0.0)
    assert [(vote.by, vote.outcome, vote.reason) for vote in verdict.votes] == [
        ("v0", "scored", None),
        ("v1", "failed", Reason.TIMEOUT),
    ]
    assert verdict.detail == "slow"


def test_aggregate_fails_with_the_most_common_reason() -> None:
    verdict = gathered(
        scored(1.0),
        Verdict.failed("k", Reason.TIMEOUT),
        Verdict.failed("k", Reason.REFUSED, raw="no"),
        Verdict.failed("k", Reason.REFUSED),
    )
    assert (verdict.outcome, verdict.value, verdict.reason) == ("failed", None, Reason.REFUSED)
    assert verdict.detail is not None
    assert "1 of 4" in verdict.detail
    assert len(verdict.votes) == 4


def test_aggregate_abstains_with_half_of_the_votes() -> None:
    verdict = gathered(scored(1.0), Verdict.abstained("k", rationale="Dark."), Verdict.abstained("k"))
    assert (verdict.outcome, verdict.rationale) == ("abstained", "Dark.")


def test_aggregate_has_the_nearest_rationale_and_the_usage_of_all() -> None:
    quote = Evidence(quote="x", start=0, end=1)
    verdict = gathered(
        scored(0.0, rationale="Far.", usage=Usage(prompt=10, cached=0, completion=1), latency_s=1.0, probability=0.1),
        scored(
            1.0, rationale="Near.", usage=Usage(prompt=20, cached=5), latency_s=3.0, probability=0.9, evidence=(quote,)
        ),
        scored(1.0, probability=0.8),
    )
    assert (verdict.rationale, verdict.evidence) == ("Near.", (quote,))
    assert verdict.usage == Usage(prompt=30, cached=5, completion=1)
    assert verdict.latency_s == 3.0
    assert verdict.probability == pytest.approx(0.6)
    assert verdict.spread == pytest.approx(0.4714, abs=1e-4)
