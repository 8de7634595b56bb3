"""Values of verdicts on the labelled completions, by question: candidates that ask the same share them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rubricsvc.core.evolution import Candidate
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.stats.evolution.objectives import Outcome
from rubricsvc.stats.rewards import reward_vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rubricsvc.stats.intervals import Floats, Ints

_WRITING = frozenset({"written", "trajectory"})


def asks_together(judge: Judge) -> bool:
    """Whether a call has several criteria, so that leaving one out changes the question about the others."""
    return any(leaf.mode in _WRITING and leaf.criteria_per_call != 1 for leaf in judge.leaf_judges)


class VerdictColumns:
    """Values of verdicts on N completions by template of the judge and question; before a candidate's threshold."""

    def __init__(self, judge: Judge, completions: Ints) -> None:
        self._together = asks_together(judge)
        self._place = {id_: row for row, id_ in enumerate(completions.tolist())}
        self._values: dict[str, Floats] = {}
        self._asked: dict[str, NDArray[np.bool_]] = {}

    def add(self, candidate: Candidate, completions: Ints, values: Floats) -> None:
        """Add the values [M, C] of a candidate's criteria on these completions; others are ignored."""
        ours = [(number, self._place[id_]) for number, id_ in enumerate(completions.tolist()) if id_ in self._place]
        taken, rows = [number for number, _ in ours], [row for _, row in ours]
        for column, key in enumerate(self._keys(candidate)):
            stored = self._values.setdefault(key, np.full(len(self._place), np.nan))
            asked = self._asked.setdefault(key, np.zeros(len(self._place), bool))
            stored[rows], asked[rows] = values[taken, column], True

    def to_ask(
        self, candidates: Iterable[Candidate], rows: NDArray[np.bool_]
    ) -> Iterator[tuple[Candidate, NDArray[np.bool_]]]:
        """Yield what the judge must be asked about these rows [N]: rubrics by template, each with its rows.

        A rubric has the new criteria of all candidates, each question once. If a call has several criteria, it is the
        whole rubric of a candidate instead.
        """
        by_template: dict[str | None, dict[str, tuple[Criterion, NDArray[np.bool_]]]] = defaultdict(dict)
        whole: set[tuple[str, ...]] = set()
        for one in candidates:
            keys = self._keys(one)
            missing = {key: rows & ~self._asked[key] if key in self._asked else rows for key in keys}
            new = [key for key in keys if missing[key].any()]
            if self._together and new and tuple(keys) not in whole:
                whole.add(tuple(keys))
                yield one, np.logical_or.reduce([missing[key] for key in new])
            elif not self._together:
                criteria = dict(zip(keys, one.rubric.criteria, strict=True))
                by_template[one.template] |= {key: (criteria[key], missing[key]) for key in new}
        for template, asked in by_template.items():
            if asked:
                criteria_asked = tuple(_question(key, one) for key, (one, _) in sorted(asked.items()))
                every = np.logical_or.reduce([each for _, each in asked.values()])
                yield Candidate(rubric=Rubric(criteria=criteria_asked), template=template), every

    def outcome(self, candidate: Candidate) -> Outcome:
        """Return what the candidate gives to all completions."""
        values = self.values(candidate)
        keys = [one.key for one in candidate.rubric.criteria]
        return Outcome(reward_vector(candidate.rubric, values), dict(zip(keys, values.T, strict=True)))

    def values(self, candidate: Candidate) -> Floats:
        """Return the values of the candidate's criteria [N, C], by its threshold; NaN where there is none."""
        missing = np.full(len(self._place), np.nan)
        columns = [self._values.get(key, missing) for key in self._keys(candidate)]
        if candidate.threshold is not None:
            threshold = candidate.threshold
            columns = [
                one if criterion.check else np.where(np.isnan(one), np.nan, (one >= threshold).astype(float))
                for criterion, one in zip(candidate.rubric.criteria, columns, strict=True)
            ]
        return np.column_stack(columns)

    def _keys(self, candidate: Candidate) -> list[str]:
        judged = [one.question for one in candidate.rubric.criteria if one.check is None]
        call: Any = judged if self._together else None
        return [_key(one, candidate.template, call) for one in candidate.rubric.criteria]


def _question(key: str, criterion: Criterion) -> Criterion:
    """Return the criterion as one of a rubric that only asks: its weight, group and veto change no verdict."""
    return criterion.model_copy(update={"key": key[:12], "weight": 1.0, "group": (), "required": False})


def _key(criterion: Criterion, template: str | None, call: Any) -> str:
    if criterion.check is not None:
        return digest("check", criterion.question)
    return digest(template, criterion.question, criterion.tags[:1], call)
