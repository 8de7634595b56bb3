"""Mixtures of data sets by weight, in an order that a resumed training repeats."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from rubricsvc.errors import InvalidError

T = TypeVar("T")


def mix(sources: Mapping[str, Sequence[T]], weights: Mapping[str, float], seed: int, *, start: int = 0) -> Iterator[T]:
    """Yield examples without end, from the sources in proportion to their weights.

    The proportion is of examples, not of targets, and already holds in short stretches: the next example is of the
    source that has fallen furthest behind its share. Each source is shuffled again in each of its epochs. The order
    depends on the sources, the weights and the seed only.

    Args:
        sources: The examples (or preferences) of each source.
        weights: The weight of each source; one with the weight 0 is not used.
        seed: Another seed gives another order.
        start: How many were drawn before: the iterator continues there.

    Raises:
        InvalidError: A weight is missing, negative or not finite, all are 0, or a source with a weight is empty.
    """
    shares = _shares(sources, weights)
    return _draw(sources, shares, seed, start)


def _draw(sources: Mapping[str, Sequence[T]], shares: Mapping[str, float], seed: int, start: int) -> Iterator[T]:
    counts = dict.fromkeys(shares, 0)
    orders: dict[str, tuple[int, list[int]]] = {}
    drawn = 0
    while True:
        drawn += 1
        name = max(shares, key=lambda one: shares[one] * drawn - counts[one])
        epoch, place = divmod(counts[name], len(sources[name]))
        counts[name] += 1
        if drawn <= start:
            continue
        if orders.get(name, (-1,))[0] != epoch:
            order = list(range(len(sources[name])))
            random.Random(f"{seed}/{name}/{epoch}").shuffle(order)
            orders[name] = epoch, order
        yield sources[name][orders[name][1][place]]


def _shares(sources: Mapping[str, Sequence[T]], weights: Mapping[str, float]) -> dict[str, float]:
    """Return the share of each source with a weight, by name, so that the order of the mapping does not matter."""
    for name in sorted(sources.keys() ^ weights.keys()):
        what = "has no weight" if name in sources else "is no source"
        raise InvalidError(f"{name!r} {what}", hint=f"give weights to {', '.join(sorted(sources))}", path="weights")
    for name, weight in weights.items():
        if not 0 <= weight < math.inf:
            message = f"the weight of {name!r} is {weight:g}, expected a finite number of at least 0"
            raise InvalidError(message, path=f"weights.{name}")
        if weight and not sources[name]:
            hint = f"add examples, or set weights.{name} to 0"
            raise InvalidError(f"the source {name!r} has no examples", hint=hint, path=f"weights.{name}")
    total = sum(weights.values())
    if not total:
        raise InvalidError("no source has a weight", hint="set a weight above 0", path="weights")
    return {name: weight / total for name, weight in sorted(weights.items()) if weight}
