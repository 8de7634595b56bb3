"""The results of the demo, read from its database: rewards and verdicts before and after training."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from rubricsvc.cli.demo.folder import DemoSize
from rubricsvc.cli.demo.pipeline import StoredQuestion, demo_judge
from rubricsvc.cli.demo.questions import Question
from rubricsvc.cli.passport import figure_lines
from rubricsvc.core.panel import mean_known
from rubricsvc.core.passport import Passport, Table
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.store import items, verdicts
from rubricsvc.store.session import Database

FAMILIES = frozenset({"says_that", "reference"})
"""Kinds of criteria in the training of a judge that the demo's judged criteria are worded as."""
MAX_PARTS = 10
"""Parts of a test set, such as data sets, up to which the report and the summary have the figures of each."""


@dataclass(frozen=True)
class ScoredCompletion:
    """A completion with its verdicts by criterion; ``truncated`` at the token limit."""

    text: str
    truncated: bool
    reward: float | None
    vetoed_by: str | None
    verdicts: Mapping[str, Verdict]


@dataclass(frozen=True)
class CriterionResult:
    """The mean value of a criterion over the completions on which it was scored."""

    criterion: Criterion
    before: float | None
    after: float | None


@dataclass(frozen=True)
class QuestionResult:
    """The completions of one question under one rubric, before and after training."""

    question: Question
    rubric: Rubric
    before: Sequence[ScoredCompletion]
    after: Sequence[ScoredCompletion]

    @property
    def generated(self) -> bool:
        """Whether the rubric was generated."""
        return self.rubric != self.question.rubric

    @property
    def reward_before(self) -> float | None:
        """Mean reward before training."""
        return mean_known(one.reward for one in self.before)

    @property
    def reward_after(self) -> float | None:
        """Mean reward after training."""
        return mean_known(one.reward for one in self.after)

    @property
    def change(self) -> float | None:
        """Difference of the mean rewards."""
        before, after = self.reward_before, self.reward_after
        return None if before is None or after is None else after - before

    @property
    def criteria(self) -> list[CriterionResult]:
        """The results of the rubric's criteria."""

        def value(part: Sequence[ScoredCompletion], key: str) -> float | None:
            return mean_known(one.verdicts[key].value for one in part if key in one.verdicts)

        return [CriterionResult(c, value(self.before, c.key), value(self.after, c.key)) for c in self.rubric.criteria]


def by_key(results: Iterable[QuestionResult]) -> list[CriterionResult]:
    """Return the mean over all questions of each criterion key."""
    groups: dict[str, list[CriterionResult]] = defaultdict(list)
    for result in results:
        for row in result.criteria:
            groups[row.criterion.key].append(row)
    return [
        CriterionResult(
            rows[0].criterion, mean_known(row.before for row in rows), mean_known(row.after for row in rows)
        )
        for rows in groups.values()
    ]


def mean_change(results: Iterable[QuestionResult]) -> tuple[float | None, float | None]:
    """Return the mean change of the reward and its standard error; None if it is known for fewer than two questions."""
    changes = [result.change for result in results if result.change is not None]
    if len(changes) < 2:
        return None, None
    return fmean(changes), stdev(changes) / len(changes) ** 0.5


def examples(results: Iterable[QuestionResult]) -> list[QuestionResult]:
    """Choose examples by rank of change: a third and two thirds up for training, the middle for held-out questions."""
    chosen = []
    for held_out, places in ((False, (1 / 3, 2 / 3)), (True, (1 / 2,))):
        part = [result for result in results if result.question.held_out == held_out]
        ranked = sorted(part, key=lambda result: result.change or 0.0)
        chosen += [ranked[index] for index in dict.fromkeys(int(len(ranked) * place) for place in places)]
    return chosen


def read_results(db: Database, stored: Sequence[StoredQuestion], before: int, after: int) -> list[QuestionResult]:
    """Read the results of two jobs: one for each question and rubric."""
    by_rubric = [_by_rubric(db, job_id) for job_id in (before, after)]
    return [
        QuestionResult(one.question, rubric, *(part[rubric_id] for part in by_rubric))
        for one in stored
        for rubric_id, rubric in one.rubrics.items()
    ]


def main_tables(passport: Passport) -> list[Table]:
    """Return the passport's test sets, their parts with criteria like the demo's, and the parts of sets with few."""
    parts = [(part, len(table.parts)) for table in passport.tables for part in table.parts]
    tables = [table for table in passport.tables if table.whole]
    tables += [part for part, _ in parts if part.name in FAMILIES]
    tables += [part for part, count in parts if count <= MAX_PARTS]
    return list({table.name: table for table in reversed(tables)}.values())[::-1]


def judged_share(results: Sequence[QuestionResult]) -> float:
    """Return the share of the weights, without their signs, that judged criteria have in the written rubrics."""
    criteria = [criterion for result in results if not result.generated for criterion in result.rubric.criteria]
    judged = sum(abs(criterion.weight) for criterion in criteria if criterion.kind == "judged")
    return judged / sum(abs(criterion.weight) for criterion in criteria)


def _by_rubric(db: Database, job_id: int) -> dict[int, list[ScoredCompletion]]:
    scored: dict[int, list[ScoredCompletion]] = defaultdict(list)
    with db.read() as session:
        rows = items.page(session, job_id, limit=1000)
        by_item = verdicts.for_items(session, [row.id for row in rows])
        for row in rows:
            completion = row.completion.value
            own = {verdict.criterion: verdict for verdict in by_item.get(row.id, [])}
            truncated = bool(completion.sampling.get("truncated"))
            scored[row.rubric_id].append(ScoredCompletion(completion.text, truncated, row.reward, row.vetoed_by, own))
    return scored


def summarize(
    size: DemoSize,
    seed: int,
    results: Sequence[QuestionResult],
    steps: Sequence[Mapping[str, Any]],
    passport: Passport,
) -> dict[str, Any]:
    """Return the figures of ``summary.json``; standard errors are over questions."""
    written = [result for result in results if not result.generated]
    all_verdicts = [v for result in results for one in (*result.before, *result.after) for v in one.verdicts.values()]
    failed = Counter(str(verdict.reason) for verdict in all_verdicts if verdict.outcome == "failed")
    figures: dict[str, Any] = {
        "prompts": len(written),
        "rubrics": len(results),
        "completions": sum(len(result.before) + len(result.after) for result in written),
        "verdicts": len(all_verdicts) - failed.total(),
        "failed_verdicts": failed.total(),
        "failed_reasons": dict(failed),
    }
    for name, held_out in (("reward", False), ("heldout", True)):
        part = [result for result in written if result.question.held_out == held_out]
        figures[f"{name}_before"] = mean_known(result.reward_before for result in part)
        figures[f"{name}_after"] = mean_known(result.reward_after for result in part)
        figures[f"{name}_change"], figures[f"{name}_change_se"] = mean_change(part)
    return figures | {
        "train_steps": len(steps),
        "scored_by": steps[-1].get("scored_by") if steps else None,
        "training_completions": len(steps) * size.prompts_per_step * size.group_size,
        "training_failed_verdicts": sum(step["failed_verdicts"] for step in steps),
        "seed": seed,
        "judge": demo_judge().name,
        "judge_adapter": demo_judge().adapter,
        "judge_digest": demo_judge().digest,
        "judge_figures": figure_lines(main_tables(passport)),
        "judge_not_for": list(passport.not_for),
        "judged_share": judged_share(results),
        "questions": [
            {
                "name": result.question.name,
                "text": result.question.text,
                "held_out": result.question.held_out,
                "before": result.reward_before,
                "after": result.reward_after,
            }
            for result in written
        ],
    }
