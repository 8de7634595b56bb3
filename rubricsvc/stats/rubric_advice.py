"""Advice about criteria, each with the figures that suggest it. docs/analysing.md lists the rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rubricsvc.core.rubric_analysis import MIN_VERDICTS, Advice, CriterionStatistics, RedundantPair

SATURATED = 0.95
REDUNDANT = 0.9
EXPLAINED = 0.8
DOMINANT = 0.5
OPPOSED = -0.05
FOLLOWS_LENGTH = 0.7
UNRELIABLE = 0.4
MIN_JUDGE_PAIRS = 20
UNSCORED = 0.1


def advice(criteria: Sequence[CriterionStatistics], redundant: Sequence[RedundantPair]) -> tuple[Advice, ...]:
    """Return the advice on these criteria, by criterion; none on one with fewer verdicts than `MIN_VERDICTS`."""
    by_key = {one.key: one for one in criteria}
    pairs = [_redundant(pair, by_key) for pair in redundant]
    retired = {one.criterion for one in pairs}
    in_pairs = {key for pair in redundant for key in (pair.a, pair.b)}
    found = list(pairs)
    for one in criteria:
        if one.n + round(one.n * one.failed) < MIN_VERDICTS:
            continue
        found += [*_retire(one), *_reweigh(one, len(criteria)), *_sharpen(one), *_check(one)]
        if one.key not in in_pairs | retired and one.explained is not None and one.explained >= EXPLAINED:
            evidence = f"the other criteria together explain {one.explained:.0%} of its variance, no single one does"
            found.append(Advice(action="split", criterion=one.key, evidence=evidence))
    order = list(by_key)
    return tuple(sorted(found, key=lambda one: order.index(one.criterion)))


def _redundant(pair: RedundantPair, by_key: Mapping[str, CriterionStatistics]) -> Advice:
    """Advise to retire the criterion with the smaller weight; of equal ones the later."""
    a, b = by_key[pair.a], by_key[pair.b]
    less, kept = (a, b) if abs(a.weight) < abs(b.weight) else (b, a)
    evidence = f"correlation {pair.correlation:+.2f} with {kept.key!r} over {pair.n} completions"
    return Advice(action="retire", criterion=less.key, evidence=evidence)


def _retire(one: CriterionStatistics) -> Iterator[Advice]:
    guards = one.required or (one.weight < 0 and one.saturated == "not met")
    if one.saturated and not guards and one.met.value is not None:
        evidence = f"met by {one.met.value:.1%} of {one.n} completions, 95 % [{one.met.low:.1%}, {one.met.high:.1%}]"
        groups = f"; it varies in {one.varying_groups:.1%} of the groups" if one.varying_groups is not None else ""
        yield Advice(action="retire", criterion=one.key, evidence=evidence + groups)
    edge = one.edge
    if edge is not None and edge.low is not None and edge.high is not None and edge.value is not None:
        wrong = edge.high < 0 if one.weight > 0 else edge.low > 0
        if wrong:
            what = "less" if one.weight > 0 else "more"
            evidence = f"people prefer completions that meet it {what}: edge {edge.value:+.3f}"
            evidence += f" [{edge.low:+.3f}, {edge.high:+.3f}], weight {one.weight:g}"
            yield Advice(action="retire", criterion=one.key, evidence=evidence)


def _reweigh(one: CriterionStatistics, criteria: int) -> Iterator[Advice]:
    share = one.variance_share if one.variance_share_within is None else one.variance_share_within
    where = "" if one.variance_share_within is None else " within groups"
    if share is None or criteria < 3:
        return
    if share >= DOMINANT:
        evidence = f"{share:.0%} of the reward's variance{where}, by one of {criteria} criteria"
        yield Advice(action="reweigh", criterion=one.key, evidence=evidence)
    elif share <= OPPOSED:
        evidence = f"{share:.0%} of the reward's variance{where}: it lowers rewards that the others raise"
        yield Advice(action="reweigh", criterion=one.key, evidence=evidence)


def _sharpen(one: CriterionStatistics) -> Iterator[Advice]:
    between = one.disagreement
    if between and between.pairs >= MIN_JUDGE_PAIRS and between.alpha is not None and between.alpha < UNRELIABLE:
        evidence = (
            f"judges differ on {between.differ:.0%} of {between.pairs} pairs of verdicts, alpha {between.alpha:.2f}"
        )
        yield Advice(action="sharpen", criterion=one.key, evidence=evidence)
    kappa = one.agreement.get("weighted_kappa")
    if kappa is not None and kappa.value is not None and kappa.high is not None and kappa.high < UNRELIABLE:
        evidence = f"kappa {kappa.value:.2f} [{kappa.low:.2f}, {kappa.high:.2f}] with {one.labels} labels"
        yield Advice(action="sharpen", criterion=one.key, evidence=evidence)
    if one.failed + one.abstained >= UNSCORED:
        evidence = f"{one.failed:.0%} of the verdicts failed, {one.abstained:.0%} are abstentions"
        yield Advice(action="sharpen", criterion=one.key, evidence=evidence)


def _check(one: CriterionStatistics) -> Iterator[Advice]:
    r = one.length_correlation
    if one.kind == "judged" and r is not None and abs(r) >= FOLLOWS_LENGTH:
        evidence = f"correlation {r:+.2f} with the length: if length is meant, a check counts it exactly"
        yield Advice(action="check", criterion=one.key, evidence=evidence)
