"""Aggregation of several verdicts on one criterion (samples of a judge, members of a panel or a cascade); comparisons.

The result is scored where at least half of the votes are, with their values combined by the rule. Otherwise it is
abstained where at least half abstained, and failed with the most common reason where not. A failed vote has no value.
In comparisons, a member is its index in an order that was shuffled before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from math import ceil
from statistics import StatisticsError, correlation, fmean, median, pstdev

from rubricsvc.core.judge import Judge, Price, Rule
from rubricsvc.core.rubric import Criterion, Scale, scale_values
from rubricsvc.core.verdict import RAW_CHARS, Reason, Usage, Verdict, Vote
from rubricsvc.errors import cut


def combine(values: Sequence[float], rule: Rule, scale: Scale) -> float:
    """Return one value for several, all in [0, 1].

    For ``majority`` each counts as the nearest level of the scale (numeric scales have none), and the most common one
    wins; ties go to the lower level.
    """
    if rule == "majority":
        levels = scale_values(scale)
        counts = Counter(min(levels or (v,), key=lambda level: (abs(level - v), level)) for v in values)
        return min(counts, key=lambda value: (-counts[value], value))
    rules: dict[Rule, Callable[[Sequence[float]], float]] = {"mean": fmean, "median": median, "min": min}
    return rules[rule](values)


def aggregate(criterion: Criterion, votes: Mapping[str, Verdict], rule: Rule) -> Verdict:
    """Return the verdict of several voters, given by name; see the module.

    Rationale and quotes are those of the vote nearest to it. ``usage`` is the sum and ``latency_s`` the maximum: the
    voters were asked concurrently.
    """
    given = list(votes.values())
    scored = [verdict for verdict in given if verdict.outcome == "scored"]
    abstained = [verdict for verdict in given if verdict.outcome == "abstained"]
    failed = [verdict for verdict in given if verdict.outcome == "failed"]
    fields: dict[str, object] = {
        "votes": as_votes(votes),
        "usage": total_usage(verdict.usage for verdict in given),
        "latency_s": max((v.latency_s for v in given if v.latency_s is not None), default=None),
        "answer_mass": mean_known(verdict.answer_mass for verdict in given),
    }
    detail = "; ".join(dict.fromkeys(verdict.detail for verdict in given if verdict.detail)) or None
    if 2 * len(scored) >= len(given):
        values = [verdict.value for verdict in scored if verdict.value is not None]
        probabilities = [verdict.probability for verdict in scored if verdict.probability is not None]
        value = combine(values, rule, criterion.scale)
        nearest = min(zip(values, scored, strict=True), key=lambda vote: abs(vote[0] - value))[1]
        fields |= {"outcome": "scored", "value": value, "spread": pstdev(values)}
        if len(probabilities) == len(scored):
            fields["probability"] = fmean(probabilities)
            if any(verdict.calibrated is not None for verdict in scored):
                fields["calibrated"] = mean_known(verdict.best_probability for verdict in scored)
    elif 2 * len(abstained) >= len(given):
        nearest = abstained[0]
        fields["outcome"] = "abstained"
    else:
        nearest = failed[0]
        reason = Counter(verdict.reason for verdict in failed).most_common(1)[0][0] or Reason.ENGINE_ERROR
        detail = f"{len(scored)} of {len(given)} votes are scored; {detail or reason}"
        fields |= {"outcome": "failed", "reason": reason, "raw": nearest.raw}
    fields |= {name: getattr(nearest, name) for name in ("rationale", "evidence", "thinking")}
    return Verdict.model_validate({"criterion": criterion.key, "detail": detail, **fields})


def resolve_cascade(votes: Mapping[str, Verdict]) -> Verdict:
    """Return a cascade's verdict: that of the last member asked, even if it failed, with summed usage and latency."""
    given = list(votes.values())
    latencies = [verdict.latency_s for verdict in given if verdict.latency_s is not None]
    fields = {
        "votes": as_votes(votes),
        "usage": total_usage(verdict.usage for verdict in given),
        "latency_s": sum(latencies) if latencies else None,
    }
    return given[-1].model_copy(update=fields)


Pair = tuple[int, int]

ANCHORS = 2
"""Number of members that all parts of a group share."""


def pairings(count: int, opponents: int | None = None) -> list[Pair]:
    """Return the pairs of ``count`` members: all, or ``opponents`` for each (one more where that cannot be even).

    The design is a circulant graph: each member is paired with those at the same distances around a circle, so that
    all have equally many pairs and, from two opponents on, the graph is connected.
    """
    if opponents is None or opponents >= count - 1:
        return list(combinations(range(count), 2))
    distances = set(range(1, opponents // 2 + 1))
    if opponents % 2:
        distances.add(count // 2 if count % 2 == 0 else opponents // 2 + 1)
    pairs = {(member, (member + distance) % count) for member in range(count) for distance in distances}
    return sorted({(min(pair), max(pair)) for pair in pairs})


def overlapping_parts(count: int, size: int) -> list[tuple[int, ...]]:
    """Return ``count`` members in parts of at most ``size``; several parts share the first `ANCHORS` members."""
    if count <= size:
        return [tuple(range(count))]
    shared = min(ANCHORS, size - 1)
    number = ceil((count - shared) / (size - shared))
    return [(*range(shared), *range(shared + part, count, number)) for part in range(number)]


def align_scores(scores: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the scores of several parts, given by member, on one scale in [0, 1].

    A judge may be stricter in one part than in another: each part's scores are shifted so that the mean of the shared
    members equals its mean over the parts. A shared member gets the mean of its shifted scores.
    """
    if not scores:
        return {}
    shared = set.intersection(*(set(part) for part in scores))
    means = [fmean(part[member] for member in sorted(shared)) for part in scores]
    common = fmean(means)
    shifted: dict[int, list[float]] = {}
    for part, mean in zip(scores, means, strict=True):
        for member, score in part.items():
            shifted.setdefault(member, []).append(min(1.0, max(0.0, score + (common - mean))))
    return {member: fmean(values) for member, values in shifted.items()}


def win_rate(pairs: Sequence[tuple[float, int]], ties: int = 0) -> float | None:
    """Return a member's mean score over its pairs, None without any; ``ties`` is the number of completions equal to it.

    A pair is a score in [0, 1] and the number of completions that the opponent stands for.
    """
    weight = sum(count for _, count in pairs) + ties
    return (sum(score * count for score, count in pairs) + 0.5 * ties) / weight if weight else None


def top_n(scores: Mapping[int, float], n: int) -> dict[int, float]:
    """Return 1 for the ``n`` best, and for ties with the last of them, and 0 for the others (reward_hub, groupwise)."""
    least = min(sorted(scores.values(), reverse=True)[:n], default=0.0)
    return {member: float(score >= least) for member, score in scores.items()}


def orders_disagree(first: float, second: float) -> bool:
    """Return whether the two orders of a pair have different winners; both scores are of the same member."""
    return (first - 0.5) * (second - 0.5) < 0


def effective_votes(votes: Iterable[Sequence[Vote]]) -> float | None:
    """Return a panel's number of independent votes, n / (1 + (n - 1) r), with r the mean pairwise correlation.

    ``votes`` are those of each verdict, in the members' order. This is Kish's design effect with Pearson's r between
    members over the verdicts that both scored, as in "Nine Judges, Two Effective Votes" (arXiv 2605.29800). A negative
    r counts as 0. None where no two members have values that vary.
    """
    values: dict[int, dict[int, float]] = {}
    for place, cast in enumerate(votes):
        for member, vote in enumerate(cast):
            values.setdefault(member, {}).update({place: vote.value} if vote.value is not None else {})
    correlations = []
    for a, b in combinations(values.values(), 2):
        both = sorted(a.keys() & b.keys())
        with suppress(StatisticsError):  # fewer than two, or one that never varies
            correlations.append(correlation([a[place] for place in both], [b[place] for place in both]))
    r = mean_known(correlations)
    return None if r is None else len(values) / (1 + (len(values) - 1) * max(0.0, r))


def voting_summary(judge: Judge, votes: Iterable[Sequence[Vote]]) -> dict[str, float]:
    """Return figures of the voting in a job of a panel, a cascade or a pairwise judge; unknown ones are left out.

    A panel has ``effective_votes``, and ``mean_spread`` of the standard deviations of its members' values. A pairwise
    judge has ``order_disagreement``, the share of pairs whose two orders have different winners. A cascade has
    ``resolved_early``, the share of verdicts without its last member, and ``saved`` (see `saved_share`).

    ``votes`` are those of each verdict, matched by index: verdicts are shared with judges whose members have other
    names.
    """
    cast = [each for each in votes if each]
    members = judge.members or ()
    figures: dict[str, float | None] = {}
    if judge.mode == "panel":
        values = [[vote.value for vote in each if vote.value is not None] for each in cast]
        spreads = [pstdev(each) for each in values if len(each) > 1]
        figures = {"effective_votes": effective_votes(cast), "mean_spread": mean_known(spreads)}
    elif judge.mode == "cascade":
        early = mean_known(len(each) < len(members) for each in cast)
        figures = {"resolved_early": early, "saved": saved_share(cast, members)}
    elif judge.pairwise:
        orders = (pair for each in cast for pair in zip(each[::2], each[1::2], strict=False))  # adjacent votes
        scored = [(a.value, b.value) for a, b in orders if a.value is not None and b.value is not None]
        figures = {"order_disagreement": mean_known(float(orders_disagree(a, b)) for a, b in scored)}
    return {name: round(value, 4) for name, value in figures.items() if value is not None}


def saved_share(votes: Iterable[Sequence[Vote]], members: Sequence[Judge]) -> float | None:
    """Return the share of cost that a cascade saved over always asking its last member; negative if it cost more.

    Costs are in US dollars where all members have a price, else in tokens. The last member's cost of a verdict is its
    mean. Verdicts with uncounted tokens are left out. None where the last member has no cost.
    """
    prices = [member.endpoint.price for member in members]
    rates = [price for price in prices if price]
    if len(rates) < len(prices):
        rates = [Price(prompt=1e6, completion=1e6)] * len(prices)
    calls = ([(rate, vote.usage) for rate, vote in zip(rates, each, strict=False)] for each in votes)
    costs = [[rate.cost(usage) for rate, usage in each if usage] for each in calls if all(u for _, u in each)]
    last = [cost[-1] for cost in costs if len(cost) == len(members)]
    return 1 - sum(map(sum, costs)) / (fmean(last) * len(costs)) if sum(last) else None


def as_votes(verdicts: Mapping[str, Verdict]) -> tuple[Vote, ...]:
    """Return the votes of the verdicts, given by voter."""
    votes = []
    for by, verdict in verdicts.items():
        fields = verdict.model_dump(include=_VOTE_FIELDS)
        if verdict.outcome == "failed":
            texts = {"detail": verdict.detail, "raw": verdict.raw}
            fields |= {name: text and cut(text, RAW_CHARS) for name, text in texts.items()}
        votes.append(Vote(by=by, **fields))
    return tuple(votes)


_VOTE_FIELDS = Vote.model_fields.keys() - {"by", "detail", "raw"}


def mean_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None without any."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def total_usage(usages: Iterable[Usage | None]) -> Usage | None:
    """Return the sum of the usages that are not None; None without any.

    Cached tokens are None if any of them are: their share of the sum of prompt tokens would be too low.
    """
    known = [usage for usage in usages if usage is not None]
    if not known:
        return None
    cached = [usage.cached for usage in known if usage.cached is not None]
    return Usage(
        prompt=sum(usage.prompt for usage in known),
        cached=sum(cached) if len(cached) == len(known) else None,
        completion=sum(usage.completion for usage in known),
        cost=sum(usage.cost for usage in known),
    )
