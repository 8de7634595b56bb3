"""Several rubrics as one: their criteria, each once.

Criteria are the same where they are copies (`Criterion.decided_by`) with a weight of the same sign, or where
the linter finds them to be near-duplicates with the same negations. A model says which of the rest ask the same.
``union([a, a])`` is ``a``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from statistics import fmean
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rubricsvc.core import strict_json
from rubricsvc.core.base import numbered_names
from rubricsvc.core.generation import AuthoringTask
from rubricsvc.core.rubric import Criterion, Ordinal, Rubric
from rubricsvc.core.validation_messages import first_error
from rubricsvc.lint.duplicates import near_duplicates
from workers.authoring.author import Author, Draft, GenerationError
from workers.authoring.rubric_replies import HARD_RULE, PRINCIPLE, body_of
from workers.authoring.templates import read, shown, shown_all

_NEGATION = re.compile(
    r"\b(?:no|not|nor|never|without|(?:fail|omit|neglect|lack|avoid|miss|wrong|false|in(?:correct|accura|complete))\w*)\b"
    r"|n['’]t\b",
    re.IGNORECASE,
)


class UnmergeableError(ValueError):
    """Rubrics that cannot be one: different formulas, weight trees, or an expression over their keys."""


@dataclass
class Merged:
    """A criterion of a union, the weights that it has in the rubrics, and the numbers of these."""

    criterion: Criterion
    weights: list[float]
    origins: set[int]

    def absorb(self, other: Merged) -> None:
        """Take in another criterion that asks the same; required is what all require, a hard rule what one calls so."""
        one, two = self.criterion, other.criterion
        if one == two:
            self.weights, self.origins = self.weights + other.weights, self.origins | other.origins
            return
        opposite = (one.weight < 0) != (two.weight < 0)
        self.weights += [-weight for weight in other.weights] if opposite else other.weights
        self.origins |= other.origins
        sources = dict.fromkeys([*(one.sources or ()), *(() if opposite else two.sources or ())])
        tags = dict.fromkeys([*one.tags, *two.tags])
        if HARD_RULE in tags:
            tags.pop(PRINCIPLE, None)
        changes = {"required": one.required and two.required, "sources": tuple(sources) or None, "tags": tuple(tags)}
        self.criterion = one.model_copy(update=changes)

    @property
    def weighted(self) -> Criterion:
        """The criterion with the mean of its weights."""
        equal = len(set(self.weights)) == 1
        return self.criterion.model_copy(update={"weight": self.weights[0] if equal else fmean(self.weights)})


@dataclass
class MergedRubric:
    """The criteria of several rubrics, in order; ``first`` is the rubric whose formula and groups they keep."""

    first: Rubric
    criteria: list[Merged] = field(default_factory=list)

    def rubric(self) -> Rubric:
        """Return the rubric. A key that a criterion before has, too, is counted.

        Where it has other criteria than the first one, the examples of that keep their verdicts, and no reward.
        """
        taken = set[str]()
        criteria = []
        for one in self.criteria:
            criteria.append(one.weighted.model_copy(update={"key": _free(one.criterion.key, taken)}))
            taken.add(criteria[-1].key)
        if tuple(criteria) == self.first.criteria:
            return self.first
        examples = (one.model_copy(update={"reward": None}) for one in self.first.examples or ())
        unrewarded = tuple(one for one in examples if one.verdicts) or None
        return self.first.model_copy(update={"examples": unrewarded}).with_criteria(criteria)

    def undecided(self) -> list[Merged]:
        """Return the criteria that another one may repeat: one that no rubric has beside it."""
        pairs = combinations(self.criteria, 2)
        left = {id(one) for pair in pairs if pair[0].origins.isdisjoint(pair[1].origins) for one in pair}
        return [one for one in self.criteria if id(one) in left]

    def joined(self, groups: Sequence[Sequence[Merged]]) -> MergedRubric:
        """Return the union where the criteria of each group are one: that which a check decides, or the first."""
        copies = {id(one): Merged(one.criterion, [*one.weights], {*one.origins}) for one in self.criteria}
        for group in groups:
            kept, *others = sorted((copies[id(one)] for one in group), key=lambda one: one.criterion.check is None)
            for other in others:
                kept.absorb(other)
            for one in group:
                if copies[id(one)] is not kept:
                    del copies[id(one)]
        return MergedRubric(self.first, list(copies.values()))


def union(rubrics: Sequence[Rubric]) -> MergedRubric:
    """Return the criteria of the rubrics, without those that are the same without doubt."""
    first = rubrics[0]
    if any(_frame(one) != _frame(first) for one in rubrics):
        raise UnmergeableError("the rubrics differ in formula, min_coverage, groups or expression")
    if first.expression is not None and any(one != first for one in rubrics):
        raise UnmergeableError("the rubrics have an expression over their keys")
    merged = MergedRubric(first)
    for number, rubric in enumerate(rubrics):
        by_question: defaultdict[object, list[Merged]] = defaultdict(list)
        for one in merged.criteria:
            by_question[_identity(one.criterion)].append(one)
        for criterion in rubric.criteria:
            given = Merged(criterion, [criterion.weight], {number})
            if same := by_question[_identity(criterion)]:
                same.pop(0).absorb(given)  # one for one: a rubric that asks twice still does
            else:
                merged.criteria.append(given)
    return merged.joined(_near_duplicates(merged.criteria))


def _frame(rubric: Rubric) -> object:
    return rubric.formula, rubric.min_coverage, rubric.groups, rubric.expression


def _identity(criterion: Criterion) -> object:
    return criterion.decided_by, criterion.weight < 0, criterion.group


def _near_duplicates(criteria: Sequence[Merged]) -> list[list[Merged]]:
    """Return groups of criteria of different rubrics that differ in a few words, and not in a negation."""
    judged = [one for one in criteria if one.criterion.check is None and one.criterion.custom_prompt is None]
    groups: list[list[Merged]] = []
    for first, second in near_duplicates([one.criterion for one in judged]):
        one, other = judged[first], judged[second]
        if not one.origins.isdisjoint(other.origins) or _meaning(one.criterion) != _meaning(other.criterion):
            continue
        group = next((group for group in groups if one in group), None)
        if group is None:
            groups.append([one, other])
        elif all(member.origins.isdisjoint(other.origins) for member in group):
            group.append(other)
    return groups


def _meaning(criterion: Criterion) -> object:
    """Return what must be equal in criteria that differ in a few words, so that they ask the same."""
    negations = Counter(word.casefold() for word in _NEGATION.findall(criterion.text))
    scale, cited = criterion.scale, (criterion.reference, criterion.passages)
    return negations, scale, cited, criterion.weight < 0, criterion.group


def described(criterion: Criterion) -> str:
    """Return what a criterion asks, on one line."""
    details = [f"weight {criterion.weight:g}"]
    if isinstance(criterion.scale, Ordinal):
        details.append("levels: " + ", ".join(level.label for level in criterion.scale.levels))
    if criterion.check is not None:
        details.append(f"decided by the check {criterion.check.name} {criterion.check.args}")
    if criterion.reference is not None:
        details.append(f"reference: {criterion.reference}")
    return f"{' '.join(criterion.text.split())} ({'; '.join(details)})"


def _free(key: str, taken: set[str]) -> str:
    """Return the key, or the first of ``key-2``, ``key-3`` … that is not taken."""
    return next(name for name in chain([key], numbered_names(key)) if name not in taken)


class _Groups(BaseModel):
    model_config = ConfigDict(extra="forbid")

    same: list[Annotated[list[int], Field(min_length=2)]]


def groups_in(text: str, count: int) -> list[list[int]]:
    """Return the groups of numbers, each from 1 to ``count`` and in one group, in a reply: ``{"same": [[1, 4]]}``."""
    try:
        groups = _Groups.model_validate(strict_json.parse(body_of(text))).same
    except ValidationError as error:
        raise ValueError(": ".join(filter(None, first_error(error, model=_Groups)))) from None
    seen = Counter(number for group in groups for number in group)
    for number, times in seen.items():
        if not 1 <= number <= count:
            raise ValueError(f"same: there is no criterion {number}, only 1 to {count}")
        if times > 1:
            raise ValueError(f"same: criterion {number} is named {times} times, expected one group")
    return groups


TEMPLATE = "merge"
NO_RUBRICS = "no_rubrics"
UNMERGEABLE = "unmergeable"


async def merge(author: Author, task: AuthoringTask) -> Draft:
    """Return the rubric of all criteria of the parents, each once."""
    parents = tuple(parent.ref for parent in task.parents)
    if len(parents) < 2:
        found = f"only {parents[0]}" if parents else "none"
        raise GenerationError(NO_RUBRICS, f"expected two or more rubrics of the prompt, found {found}")
    try:
        merged = union([parent.rubric for parent in task.parents])
    except UnmergeableError as error:
        raise GenerationError(UNMERGEABLE, str(error)) from error
    if not (left := merged.undecided()):
        return Draft(merged.rubric(), read(TEMPLATE), raw_reply="", redraws=0, repairs=0, parents=parents)
    numbered = {str(number): described(one.criterion) for number, one in enumerate(left, start=1)}
    values = {"prompt": shown("question", task.prompt.text), "criteria": shown_all("criterion", numbered)}

    def reader(text: str, _truncated: bool) -> Rubric:
        groups = groups_in(text, len(left))
        return merged.joined([[left[number - 1] for number in group] for group in groups]).rubric()

    draft = await author.write(TEMPLATE, values, reader=reader)
    return replace(draft, parents=parents)
