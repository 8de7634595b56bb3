"""Preference pairs of a group, as TRL's trainers read them: three lists of OpenAI's messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb
from typing import Any, TypeVarTuple

from sqlalchemy import Select, func, select, tuple_
from sqlalchemy.orm import Session, joinedload

from rubricsvc.core.prompt import Completion, with_documents
from rubricsvc.store import items, jobs, prompts
from rubricsvc.store.tables import CompletionRow, ItemRow, JobRow, PromptRow

ITEMS_PER_PAGE = 200
"""Maximum number of items in one page, so that a page of ties ends too."""

Group = tuple[int, int]
"""(prompt id, rubric id): the completions of a job of one prompt under one rubric."""

Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True)
class Preference:
    """A pair of indices in the group; ``margin`` is the difference of their rewards."""

    chosen: int
    rejected: int
    margin: float


@dataclass(frozen=True)
class PreferencePairs:
    """The preference pairs of a group.

    Attributes:
        close: Number of pairs left out for their margin, ties included.
        same: Number of pairs left out because both completions are equal.
    """

    judge: str
    prompt: PromptRow
    rows: Sequence[ItemRow]
    messages: list[list[dict[str, Any]]]
    preferences: list[Preference]
    close: int
    same: int

    @cached_property
    def prompt_messages(self) -> list[dict[str, Any]]:
        """The prompt as a policy is asked: with its documents."""
        return [message.openai for message in with_documents(self.prompt.value).messages]

    @cached_property
    def by_chosen(self) -> dict[int, list[Preference]]:
        """The pairs by the id of the chosen item."""
        found: dict[int, list[Preference]] = {row.id: [] for row in self.rows}
        for pair in self.preferences:
            found[self.rows[pair.chosen].id].append(pair)
        return found

    def line(self, pair: Preference) -> dict[str, Any]:
        """Return one pair as it is exported."""
        chosen, rejected = self.rows[pair.chosen], self.rows[pair.rejected]
        return {
            "prompt": self.prompt_messages,
            "chosen": self.messages[pair.chosen],
            "rejected": self.messages[pair.rejected],
            "margin": pair.margin,
            "chosen_reward": chosen.reward,
            "rejected_reward": rejected.reward,
            "prompt_id": self.prompt.id,
            "prompt_external_id": self.prompt.external_id,
            "chosen_completion_id": chosen.completion_id,
            "rejected_completion_id": rejected.completion_id,
            "rubric": f"{chosen.rubric.name}@{chosen.rubric.version}",
            "formula": chosen.formula,
            "judge": self.judge,
        }


def groups(session: Session, job_id: int, *, after: Group = (0, 0), limit: int = 100, least: int = 2) -> list[Group]:
    """Return up to ``limit`` groups of a job above ``after``, ascending, of those with ``least`` rewards or more."""
    group = (CompletionRow.prompt_id, ItemRow.rubric_id)
    query = (
        _rewarded(select(*group), job_id).where(tuple_(*group) > after).group_by(*group).having(func.count() >= least)
    )
    return [(prompt_id, rubric_id) for prompt_id, rubric_id in session.execute(query.order_by(*group).limit(limit))]


def _members(session: Session, job_id: int, group: Group) -> list[ItemRow]:
    """Return the items of a group that have a reward, by id."""
    prompt_id, rubric_id = group
    query = _rewarded(select(ItemRow), job_id).options(joinedload(ItemRow.completion), joinedload(ItemRow.rubric))
    query = query.where(ItemRow.rubric_id == rubric_id, CompletionRow.prompt_id == prompt_id)
    return list(session.scalars(query.order_by(ItemRow.id)))


def without_reward(session: Session, job_id: int) -> int:
    """Return the number of a job's completions without a reward, which are in no group."""
    query = select(func.count()).where(ItemRow.job_id == job_id, ItemRow.reward.is_(None))
    return session.scalars(query).one()


def _rewarded(query: Select[*Ts], job_id: int) -> Select[*Ts]:
    """Restrict a query to a job's items with rewards, with their completions."""
    query = query.join_from(ItemRow, CompletionRow, CompletionRow.id == ItemRow.completion_id)
    return query.where(ItemRow.job_id == job_id, ItemRow.reward.is_not(None))


def preferences(rewards: Sequence[float], min_margin: float = 0.0) -> Iterator[Preference]:
    """Yield each pair of a group whose rewards differ by ``min_margin`` or more; ties are never pairs."""
    for one, other in combinations(range(len(rewards)), 2):
        chosen, rejected = (one, other) if rewards[one] >= rewards[other] else (other, one)
        margin = rewards[chosen] - rewards[rejected]
        if margin > 0 and margin >= min_margin:
            yield Preference(chosen, rejected, margin)


def of_group(session: Session, job: JobRow, group: Group, min_margin: float = 0.0) -> PreferencePairs:
    """Return a pair for each two completions of a group whose rewards differ by ``min_margin`` or more."""
    rows = _members(session, job.id, group)
    messages = [_messages(row.completion.value) for row in rows]
    apart = list(preferences([row.reward for row in rows if row.reward is not None], min_margin))
    distinct = [pair for pair in apart if messages[pair.chosen] != messages[pair.rejected]]
    prompt = prompts.get(session, group[0])
    return PreferencePairs(
        job.judge.name,
        prompt,
        rows,
        messages,
        distinct,
        close=comb(len(rows), 2) - len(apart),
        same=len(apart) - len(distinct),
    )


def page(
    session: Session, job_id: int, *, after: int = 0, limit: int = 100, min_margin: float = 0.0
) -> tuple[list[dict[str, Any]], int | None]:
    """Return up to ``limit`` pairs whose chosen items have ids above ``after``, ascending, and the next ``after``.

    A page holds all pairs of a chosen item, if need be more than ``limit``.
    """
    job = jobs.scoring(session, job_id)
    rows = items.page(session, job_id, after=after, limit=ITEMS_PER_PAGE + 1)
    known: dict[Group, PreferencePairs] = {}
    found: list[dict[str, Any]] = []
    for row in rows[:ITEMS_PER_PAGE]:
        if row.reward is not None:
            group = row.completion.prompt_id, row.rubric_id
            if group not in known:
                known[group] = of_group(session, job, group, min_margin)
            more = known[group].by_chosen[row.id]
            if found and len(found) + len(more) > limit:
                return found, after
            found += map(known[group].line, more)
        after = row.id
    return found, after if len(rows) > ITEMS_PER_PAGE else None


def _messages(completion: Completion) -> list[dict[str, Any]]:
    """Return the completion as chat messages: the whole trajectory, if there is one."""
    if completion.messages:
        return [message.openai for message in completion.messages]
    return [{"role": "assistant", "content": completion.text}]
