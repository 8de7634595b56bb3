"""Pair what two jobs scored: completions, or prompts where the completions are different ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from rubricsvc.core.job_comparison import PairedBy
    from rubricsvc.core.rubric import Criterion, Rubric
    from rubricsvc.store.items import ItemReward

T = TypeVar("T")


@dataclass(frozen=True)
class ScoredUnit:
    """What one job scored under one rubric version: a completion, or the completions of a prompt."""

    entity: int
    items: list[ItemReward] = field(default_factory=list)

    @property
    def rubric_id(self) -> int:
        """The id of the rubric version."""
        return self.items[0].rubric_id

    @property
    def rubric(self) -> str:
        """The rubric's name."""
        return self.items[0].rubric.rpartition("@")[0]

    @property
    def reward(self) -> float | None:
        """The mean reward; None where no completion has one."""
        known = [item.reward for item in self.items if item.reward is not None]
        return fmean(known) if known else None

    @property
    def unfinished(self) -> bool:
        """Whether a completion is still to be scored."""
        return any(item.state in ("pending", "leased") for item in self.items)


UnitPair = tuple[ScoredUnit, ScoredUnit]
"""The same completion or prompt in both jobs."""


class RewardedPair(NamedTuple):
    """A pair with a reward on both sides."""

    a: ScoredUnit
    b: ScoredUnit
    reward_a: float
    reward_b: float

    @property
    def sides(self) -> tuple[ScoredUnit, ScoredUnit]:
        """What both jobs scored."""
        return self.a, self.b

    @property
    def prompt_id(self) -> int:
        """The prompt, which is the same on both sides."""
        return self.a.items[0].prompt_id

    @property
    def difference(self) -> float:
        """The reward of B less that of A, to 12 decimals."""
        return round(self.reward_b - self.reward_a, 12) + 0.0  # + 0.0: no -0.0


def by_entity(items: Iterable[ItemReward], by: PairedBy) -> list[ScoredUnit]:
    """Return what a job scored under each rubric version: its completions, or its prompts."""
    found: dict[tuple[int, int], ScoredUnit] = {}
    for item in items:
        entity = item.completion_id if by == "completion" else item.prompt_id
        found.setdefault((entity, item.rubric_id), ScoredUnit(entity)).items.append(item)
    return list(found.values())


def pairs_of(first: Iterable[ScoredUnit], second: Iterable[ScoredUnit]) -> list[UnitPair]:
    """Pair what both jobs scored under the same version, else under one rubric name, else under any rubric."""
    keys: tuple[Callable[[ScoredUnit], object], ...] = (
        lambda one: (one.entity, one.rubric_id),
        lambda one: (one.entity, one.rubric),
        lambda one: one.entity,
    )
    return matched(first, second, *keys)


def rewarded(pairs: Iterable[UnitPair]) -> list[RewardedPair]:
    """Return the pairs that have a reward on both sides."""
    rewards = ((a, b, a.reward, b.reward) for a, b in pairs)
    return [RewardedPair(a, b, x, y) for a, b, x, y in rewards if x is not None and y is not None]


def matched(first: Iterable[T], second: Iterable[T], *keys: Callable[[T], object]) -> list[tuple[T, T]]:
    """Pair things by the first of ``keys`` that names exactly one of those left on each side."""
    pairs, left, right = [], list(first), list(second)
    for key in keys:
        by_key: tuple[dict[object, list[T]], ...] = (defaultdict(list), defaultdict(list))
        for things, found in zip((left, right), by_key, strict=True):
            for thing in things:
                found[key(thing)].append(thing)
        unique = [name for name, things in by_key[0].items() if len(things) == 1 == len(by_key[1].get(name, ()))]
        pairs += [(by_key[0].pop(name)[0], by_key[1].pop(name)[0]) for name in unique]
        left, right = ([thing for things in found.values() for thing in things] for found in by_key)
    return pairs


def match_criteria(a: Rubric, b: Rubric) -> list[tuple[Criterion, Criterion]]:
    """Pair the criteria of two rubrics by key and wording, else by wording, else by key."""
    return matched(a.criteria, b.criteria, lambda one: (one.key, wording(one)), wording, lambda one: one.key)


def wording(criterion: Criterion) -> str:
    """Return the text that decides whether two criteria have the same wording.

    Not `Criterion.decided_by`: a criterion whose scale, reference or check was edited is compared with what it was.
    """
    return " ".join(criterion.text.split())
