"""Several findings on one criterion made one: samples of a judge, members of a panel or a cascade.

A verdict is scored where at least half of the votes are: its value is theirs, folded by the rule. Otherwise it is
abstained where at least half abstained, and failed with the commonest reason where not. A failed vote is no number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from statistics import StatisticsError, correlation, fmean, median, pstdev

from rubricsvc.core.comparison import disagree
from rubricsvc.core.judge import Judge, Price, Rule
from rubricsvc.core.rubric import Binary, Criterion, Numeric, Scale
from rubricsvc.core.verdict import RAW_CHARS, Reason, Usage, Verdict, Vote
from rubricsvc.errors import cut


def fold(values: Sequence[float], rule: Rule, scale: Scale) -> float:
    """One value for several, all in [0, 1].

    For ``majority`` each counts as the nearest level of the scale (a numeric one has none), and the commonest wins; of
    levels that are as near or as common, the lower one.
    """
    if rule == "majority":
        counts = Counter(_nearest(value, scale) for value in values)
        return min(counts, key=lambda value: (-counts[value], value))
    return _RULES[rule](values)


_RULES: dict[Rule, Callable[[Sequence[float]], float]] = {"mean": fmean, "median": median, "min": min}


def _nearest(value: float, scale: Scale) -> float:
    if isinstance(scale, Numeric):
        return value
    levels = (0.0, 1.0) if isinstance(scale, Binary) else [level.value for level in scale.levels]
    return min(levels, key=lambda level: (abs(level - value), level))


def gather(criterion: Criterion, findings: Mapping[str, Verdict], rule: Rule) -> Verdict:
    """The verdict of several voters, by name; see the module. Rationale and quotes are those of the vote nearest to it.

    ``usage`` is their sum and ``latency_s`` that of the slowest: they were asked side by side.
    """
    given = list(findings.values())
    scored = [verdict for verdict in given if verdict.outcome == "scored"]
    silent = [verdict for verdict in given if verdict.outcome == "abstained"]
    failed = [verdict for verdict in given if verdict.outcome == "failed"]
    common = {
        "votes": votes_of(findings),
        "usage": total(verdict.usage for verdict in given),
        "latency_s": max((v.latency_s for v in given if v.latency_s is not None), default=None),
        "answer_mass": mean_of(verdict.answer_mass for verdict in given),
        "detail": "; ".join(dict.fromkeys(verdict.detail for verdict in given if verdict.detail)) or None,
    }
    if 2 * len(scored) >= len(given):
        values = [verdict.value for verdict in scored if verdict.value is not None]
        chances = [verdict.probability for verdict in scored if verdict.probability is not None]
        value = fold(values, rule, criterion.scale)
        nearest = min(zip(values, scored, strict=True), key=lambda vote: abs(vote[0] - value))[1]
        if len(chances) == len(scored):
            common["probability"] = fmean(chances)
            if any(verdict.calibrated is not None for verdict in scored):
                common["calibrated"] = fmean(v.best_probability for v in scored if v.best_probability is not None)
        return Verdict.scored(criterion.key, value, spread=pstdev(values), **_words(nearest), **common)
    if 2 * len(silent) >= len(given):
        return Verdict.abstained(criterion.key, **_words(silent[0]), **common)
    reason = Counter(verdict.reason for verdict in failed).most_common(1)[0][0] or Reason.ENGINE_ERROR
    common["detail"] = f"{len(scored)} of {len(given)} votes are scored; {common['detail'] or reason}"
    return Verdict.failed(criterion.key, reason, raw=failed[0].raw, **_words(failed[0]), **common)


def certain(verdict: Verdict, band: tuple[float, float]) -> bool:
    """Whether a cascade ends here: there is a finding, and its chance (or value, without one) is off the band."""
    chance = verdict.value if verdict.best_probability is None else verdict.best_probability
    return verdict.outcome == "scored" and chance is not None and not band[0] <= chance <= band[1]


def settle(findings: Mapping[str, Verdict]) -> Verdict:
    """A cascade's verdict: that of the last member asked, a failure too. ``usage`` and ``latency_s`` are sums."""
    given = list(findings.values())
    known = [verdict.latency_s for verdict in given if verdict.latency_s is not None]
    told = {
        "votes": votes_of(findings),
        "usage": total(verdict.usage for verdict in given),
        "latency_s": sum(known) if known else None,
    }
    return given[-1].model_copy(update=told)


def effective_votes(votes: Iterable[Sequence[Vote]]) -> float | None:
    """How many independent votes a panel is worth: n / (1 + (n - 1) r), r the members' mean pairwise correlation.

    ``votes`` are those of each verdict, in the members' order. Kish's design effect, with Pearson's r between members
    over the verdicts in which both scored, as "Nine Judges, Two Effective Votes" (arXiv 2605.29800) counts them. A
    negative r counts as 0: no panel is worth more than its members. None where no two members have values that vary.
    """
    values: dict[int, dict[int, float]] = {}
    for place, cast in enumerate(votes):
        for member, vote in enumerate(cast):
            values.setdefault(member, {}).update({place: vote.value} if vote.value is not None else {})
    found = [_correlation(a, b) for a, b in combinations(values.values(), 2)]
    known = [r for r in found if r is not None]
    return len(values) / (1 + (len(values) - 1) * max(0.0, fmean(known))) if known else None


def worth(judge: Judge, votes: Iterable[Sequence[Vote]]) -> dict[str, float]:
    """What voting came to over a job of a panel, a cascade or a pairwise judge; ``votes`` are those of each verdict.

    Votes are told apart by place and not by name: verdicts are shared with judges whose members are called otherwise.
    A panel has ``effective_votes``, and ``mean_spread`` of the standard deviations of its members' values. A pairwise
    judge has ``torn``, the share of pairs in which the two orders name different winners. A cascade has
    ``settled_early``, the share of verdicts that did not need its last member, and ``saved``, or ``saved_estimate``
    where its last member was never asked; ``saved_over`` says over how many verdicts, where others have a call that was
    not counted. What cannot be told is left out.
    """
    cast = [each for each in votes if each]
    if judge.mode == "panel":
        found = {"effective_votes": effective_votes(cast), "mean_spread": mean_of(map(_spread, cast))}
    elif judge.mode == "cascade":
        early = [len(each) < len(judge.members or ()) for each in cast]
        members = judge.members or ()
        counted = [each for each in cast if all(vote.usage for vote in each)]
        asked = any(len(each) == len(members) for each in counted)
        share = saved(counted, members)
        found = {
            "settled_early": fmean(early) if early else None,
            "saved" if asked else "saved_estimate": share,
            "saved_over": len(counted) if share is not None and len(counted) < len(cast) else None,
        }
    elif judge.pairwise:
        found = {"torn": mean_of(torn for each in cast for torn in _torn(each))}
    else:
        found = {}
    return {name: round(value, 4) for name, value in found.items() if value is not None}


def saved(votes: Sequence[Sequence[Vote]], members: Sequence[Judge]) -> float | None:
    """The share of its cost that a cascade saved against asking its last member about everything; below 0 it cost more.

    In US dollars where all members have a price, else in tokens. The last member's mean cost of a verdict stands for
    those that it was not asked for; where it was never asked, the first member's tokens at the last one's price, which
    is too little for one that writes more. None where no price tells them apart then, or a call was not counted.
    """
    prices = [member.endpoint.price for member in members]
    priced = None not in prices
    if not priced:
        prices = [Price(prompt=1e6, completion=1e6)] * len(members)
    calls = [(at, prices[at], vote.usage) for each in votes for at, vote in enumerate(each)]
    costs = [(at, price.cost_of(usage)) for at, price, usage in calls if usage and price]
    last = [cost for at, cost in costs if at == len(members) - 1]
    if not last and priced and (dear := prices[-1]):
        last = [dear.cost_of(usage) for at, _, usage in calls if at == 0 and usage]
    if len(costs) < len(calls) or not sum(last):
        return None
    return 1 - sum(cost for _, cost in costs) / (fmean(last) * len(votes))


def _spread(votes: Sequence[Vote]) -> float | None:
    values = [vote.value for vote in votes if vote.value is not None]
    return pstdev(values) if len(values) > 1 else None


def _torn(votes: Sequence[Vote]) -> Iterator[float | None]:
    """Of each pair, whose two orders follow each other; None where one of them failed."""
    for first, second in zip(votes[::2], votes[1::2], strict=False):
        values = first.value, second.value
        yield None if values[0] is None or values[1] is None else float(disagree(values[0], values[1]))


def _correlation(a: Mapping[int, float], b: Mapping[int, float]) -> float | None:
    both = sorted(a.keys() & b.keys())
    try:
        return correlation([a[place] for place in both], [b[place] for place in both])
    except StatisticsError:  # fewer than two, or one that never varies
        return None


def votes_of(findings: Mapping[str, Verdict]) -> tuple[Vote, ...]:
    """What each voter found, under its name."""
    return tuple(_vote(by, verdict) for by, verdict in findings.items())


def _vote(by: str, verdict: Verdict) -> Vote:
    told = verdict.model_dump(include=_KEPT)
    if verdict.outcome == "failed":
        told |= {"detail": _kept(verdict.detail), "raw": _kept(verdict.raw)}
    return Vote(by=by, **told)


_KEPT = Vote.model_fields.keys() - {"by", "detail", "raw"}


def _kept(text: str | None) -> str | None:
    return text and cut(text, RAW_CHARS)


def mean_of(values: Iterable[float | None]) -> float | None:
    """Of those that there are."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def total(usages: Iterable[Usage | None]) -> Usage | None:
    """The tokens of several calls; None where none was counted."""
    known = [usage for usage in usages if usage is not None]
    if not known:
        return None
    return Usage(**{name: sum(getattr(usage, name) for usage in known) for name in Usage.model_fields})


def _words(verdict: Verdict) -> dict[str, object]:
    return {"rationale": verdict.rationale, "evidence": verdict.evidence, "thinking": verdict.thinking}
