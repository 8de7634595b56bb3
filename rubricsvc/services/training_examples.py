"""Examples for TRL's trainers from the rewards of a job, in the columns that these load: conversations of messages.

- ``sft``: prompt, completion. The best completions of each prompt.
- ``dpo``: prompt, chosen, rejected. Pairs of completions of a prompt, without contradictory and uncertain ones.
- ``kto``: prompt, completion, label. Whether a completion is better than a threshold.
- ``pairs``: as ``dpo``, all that have another reward.

Other columns say where an example is from; TRL ignores them. A completion that repeats another one of its prompt
(`core.shingles`) is left out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from math import sqrt
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING, Any, Literal

from rubricsvc.core.label import OVERALL
from rubricsvc.core.shingles import copy_groups
from rubricsvc.store import jobs, labels
from rubricsvc.store.jobs import Group, Preference, PreferencePairs

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import ItemRow, JobRow

ExampleKind = Literal["sft", "dpo", "kto", "pairs"]
Row = dict[str, Any]

GROUPS_PER_PAGE = 100
_Z = NormalDist().inv_cdf(0.975)
_ROUNDING = 1e-12


@dataclass(frozen=True)
class ExampleRules:
    """What is exported.

    Attributes:
        top: ``sft``: completions of a prompt and rubric.
        min_margin: ``dpo`` and ``pairs``: the least difference of two rewards.
        noise: ``dpo`` and ``kto``: standard deviation of a reward if the judge is asked again; None is the measured one
            of the judge, or 0.
        threshold: ``kto``: reward of a desirable completion; None is the mean of the prompt's rewards under the rubric.
    """

    kind: ExampleKind
    top: int = 1
    min_margin: float = 0.0
    noise: float | None = None
    threshold: float | None = None


@dataclass
class ExampleCounts:
    """How many examples were written, and how many left out by reason.

    ``close``: a tie, or closer than ``min_margin``. ``uncertain``: within the judge's noise at 95 %. ``contradictory``:
    the same texts are ordered or labelled the other way, too. ``near_duplicates``: the texts repeat another example, or
    those of a pair each other. ``lower``: not among the best. ``single``: nothing to compare it with.
    ``completions_without_reward`` counts completions also where pairs are written.
    """

    written: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class _PromptGroups:
    """The rewarded completions of a prompt under each rubric, and what people said of them."""

    groups: Sequence[PreferencePairs]
    noise: float
    overall: Sequence[dict[int, float]]

    @cached_property
    def copies(self) -> dict[int, int]:
        """The number of the first completion that one repeats, by the id of its item."""
        rows = [row for group in self.groups for row in group.rows]
        return dict(
            zip((row.id for row in rows), copy_groups([row.completion.value.full_text for row in rows]), strict=True)
        )

    def people_disagree(self, chosen: ItemRow, rejected: ItemRow) -> bool:
        """Whether more people gave the rejected completion the higher overall score than the chosen one."""
        sides = chosen.completion_id, rejected.completion_id
        gaps = [scores[sides[0]] - scores[sides[1]] for scores in self.overall if scores.keys() >= set(sides)]
        return sum(gap < 0 for gap in gaps) > sum(gap > 0 for gap in gaps)


def example_pages(db: Database, job_id: int, rules: ExampleRules, counts: ExampleCounts) -> Iterator[list[Row]]:
    """Yield the examples of a job in pages, by prompt. ``counts`` counts them.

    Raises:
        NotFoundError: No such job.
    """
    select, least = _KINDS[rules.kind]
    with db.read() as session:
        job = jobs.scoring(session, job_id)
        noise = rules.noise if rules.noise is not None else judge_noise(job)
        counts.left_out["completions_without_reward"] = jobs.groups_without_reward(session, job_id)
    page: list[Row] = []
    for _, of_prompt in groupby(_groups(db, job_id, least), key=lambda group: group[0]):
        with db.read() as session:
            found = _read(session, job_id, list(of_prompt), rules.min_margin, noise)
            rows = list(select(found, rules, counts.left_out))
        counts.written += len(rows)
        page += rows
        if len(page) >= GROUPS_PER_PAGE:
            yield page
            page = []
    if page:
        yield page


def judge_noise(job: JobRow) -> float:
    """Return the measured standard deviation of a reward if the job's judge is asked again; 0 if there is none."""
    measured = job.judge.measured
    return (measured.reward.value or 0.0) if measured is not None else 0.0


def _groups(db: Database, job_id: int, least: int) -> Iterator[Group]:
    after = (0, 0)
    while True:
        with db.read() as session:
            page = jobs.pair_groups(session, job_id, after=after, limit=GROUPS_PER_PAGE, least=least)
        yield from page
        if not page:
            return
        after = page[-1]


def _read(session: Session, job_id: int, groups: Sequence[Group], min_margin: float, noise: float) -> _PromptGroups:
    job = jobs.scoring(session, job_id)
    found = [jobs.pairs_of_group(session, job, group, min_margin) for group in groups]
    people: dict[str, dict[int, float]] = defaultdict(dict)
    for label, completion, _ in labels.of_completions(
        session, {row.completion_id for group in found for row in group.rows}
    ):
        if label.criterion == OVERALL and label.value is not None:
            people[label.annotator][completion.id] = label.value
    return _PromptGroups(found, noise, list(people.values()))


def _all_pairs(found: _PromptGroups, _: ExampleRules, left_out: Counter[str]) -> Iterator[Row]:
    for group in found.groups:
        left_out["close"] += group.close
        left_out["near_duplicates"] += group.same
        yield from map(group.line, group.preferences)


def _clean_pairs(found: _PromptGroups, _: ExampleRules, left_out: Counter[str]) -> Iterator[Row]:
    """Yield one pair for each two different texts that no rubric, copy or person orders the other way."""
    ordered: dict[tuple[int, int], list[tuple[PreferencePairs, Preference]]] = defaultdict(list)
    disputed = set()
    for group in found.groups:
        left_out["close"] += group.close
        left_out["near_duplicates"] += group.same
        for pair in group.preferences:
            chosen, rejected = group.rows[pair.chosen], group.rows[pair.rejected]
            key = found.copies[chosen.id], found.copies[rejected.id]
            if pair.margin <= _Z * sqrt(2) * found.noise:
                left_out["uncertain"] += 1
            elif key[0] == key[1]:
                left_out["near_duplicates"] += 1
            else:
                ordered[key].append((group, pair))
                if found.people_disagree(chosen, rejected):
                    disputed.add(key)
    for key, several in ordered.items():
        if key in disputed or key[::-1] in ordered:
            left_out["contradictory"] += len(several)
        else:
            left_out["near_duplicates"] += len(several) - 1
            group, pair = max(several, key=lambda one: one[1].margin)
            yield group.line(pair)


def _best(found: _PromptGroups, rules: ExampleRules, left_out: Counter[str]) -> Iterator[Row]:
    """Yield the best different completions of each rubric; those that another rubric has, too, are not repeated."""
    taken = set[int]()
    for group in found.groups:
        best = set[int]()
        for place in sorted(range(len(group.rows)), key=lambda place: (-(group.rows[place].reward or 0.0), place)):
            copy = found.copies[group.rows[place].id]
            if len(best) == rules.top:
                left_out["lower"] += 1
            elif copy in best | taken:
                left_out["near_duplicates"] += 1
                best.add(copy)
            else:
                best.add(copy)
                yield _example(group, place)
        taken |= best


def _labelled(found: _PromptGroups, rules: ExampleRules, left_out: Counter[str]) -> Iterator[Row]:
    """Yield each completion that is certainly above or below the threshold, unless a copy is on the other side."""
    by_copy: dict[int, list[tuple[float, PreferencePairs, int]]] = defaultdict(list)
    for group in found.groups:
        rewards = [row.reward for row in group.rows if row.reward is not None]
        if rules.threshold is None and len(rewards) == 1:
            left_out["single"] += 1
            continue
        threshold = fmean(rewards) if rules.threshold is None else rules.threshold
        for place, reward in enumerate(rewards):
            gap = reward - threshold
            if abs(gap) <= max(_Z * found.noise, _ROUNDING):
                left_out["uncertain"] += 1
            else:
                by_copy[found.copies[group.rows[place].id]].append((gap, group, place))
    for several in by_copy.values():
        if len({gap > 0 for gap, *_ in several}) > 1:
            left_out["contradictory"] += len(several)
        else:
            left_out["near_duplicates"] += len(several) - 1
            gap, group, place = max(several, key=lambda one: abs(one[0]))
            yield {**_example(group, place), "label": gap > 0}


def _example(group: PreferencePairs, place: int) -> Row:
    row = group.rows[place]
    return {
        "prompt": group.prompt_messages,
        "completion": group.messages[place],
        "reward": row.reward,
        "prompt_id": group.prompt.id,
        "prompt_external_id": group.prompt.external_id,
        "completion_id": row.completion_id,
        "policy": row.completion.policy,
        "rubric": f"{row.rubric.name}@{row.rubric.version}",
        "formula": row.formula,
        "judge": group.judge,
    }


_Select = Callable[[_PromptGroups, ExampleRules, Counter[str]], Iterator[Row]]
_KINDS: dict[ExampleKind, tuple[_Select, int]] = {
    "sft": (_best, 1),
    "dpo": (_clean_pairs, 2),
    "kto": (_labelled, 1),
    "pairs": (_all_pairs, 2),
}
"""What selects the examples of a prompt, and how many rewards a group needs."""
