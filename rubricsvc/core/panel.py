"""Figures of the votes of panels, cascades and pairs; sums and means of what is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import combinations
from statistics import StatisticsError, correlation, fmean, pstdev

from rubricsvc.core.judge import Judge, Price
from rubricsvc.core.verdict import Usage, Vote


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
    ``resolved_early``, the share of verdicts without its last member, and ``saved``: the share of cost that it saved
    over always asking its last member; negative if it cost more. Costs are in US dollars where all members have a
    price, else in tokens. The last member's cost of a verdict is its mean. Verdicts with uncounted tokens are left out.

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
        prices = [member.endpoint.price for member in members]
        rates = [price for price in prices if price]
        if len(rates) < len(prices):
            rates = [Price(prompt=1e6, completion=1e6)] * len(prices)
        calls = ([(rate, vote.usage) for rate, vote in zip(rates, each, strict=False)] for each in cast)
        costs = [[rate.cost(usage) for rate, usage in each if usage] for each in calls if all(u for _, u in each)]
        last = [cost[-1] for cost in costs if len(cost) == len(members)]
        figures = {
            "resolved_early": mean_known(len(each) < len(members) for each in cast),
            "saved": 1 - sum(map(sum, costs)) / (fmean(last) * len(costs)) if sum(last) else None,
        }
    elif judge.pairwise:
        orders = (pair for each in cast for pair in zip(each[::2], each[1::2], strict=False))  # adjacent votes
        scored = [(a.value, b.value) for a, b in orders if a.value is not None and b.value is not None]
        figures = {"order_disagreement": mean_known(float(orders_disagree(a, b)) for a, b in scored)}
    return {name: round(value, 4) for name, value in figures.items() if value is not None}


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
