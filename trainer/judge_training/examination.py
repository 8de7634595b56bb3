"""What a trained judge reaches on what it was not trained on: tables, calibration, agreement, repeatability, audit.

The judge is asked as workers ask it, with the exported weights. Questions whose verdict failed count as the value 0.5,
and are counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from rubricsvc.core.audit import Audit
from rubricsvc.core.calibration import Calibration
from rubricsvc.core.judge import Judge
from rubricsvc.core.label import JudgedLabel, Label
from rubricsvc.core.passport import TRAINED, UNTRAINED, Agreement, CalibrationReport, Figure, Row, Table
from rubricsvc.core.prompt import Completion
from rubricsvc.core.repeatability import Repeatability
from rubricsvc.core.verdict import Verdict
from rubricsvc.stats import OnProgress
from rubricsvc.stats.calibration_fit import MIN_PROMPTS, calibrate
from trainer.judge_training.asking import probabilities
from trainer.judge_training.baselines import Question, baselines
from trainer.judge_training.examples import Example, Target, questions
from trainer.judge_training.metrics import MIN_CLASS_FOR_AUROC, By, agreement, reliability, rows
from workers.audit import cases, runner, suites
from workers.audit.plan import AuditPlan
from workers.audit.repeatability import group_completions, measure
from workers.engines import make_engine
from workers.engines.base import Engine

T = TypeVar("T")

MIN_PART = 10
"""Questions that a part of the test needs to have figures of its own."""


@dataclass(frozen=True)
class Examination:
    """The figures of a trained judge. ``judge`` is calibrated where that helped."""

    judge: Judge
    tables: tuple[Table, ...]
    calibration: CalibrationReport | None
    agreement: Agreement | None
    repeatability: Repeatability | None
    audit: Audit | None
    audit_untrained: Audit | None
    failed: int


def examine(
    judge: Judge,
    untrained: Judge,
    train: Sequence[Example],
    validation: Sequence[Example],
    test: Sequence[Example],
    *,
    held_out: Collection[str] = (),
    audited: bool = True,
    on_progress: OnProgress = lambda done, total, note: None,
) -> Examination:
    """Measure a trained judge beside its untrained base and baselines that are fitted to ``train``.

    Calibration curves are fitted to ``validation``; all figures are of ``test``, with these curves.

    Args:
        judge: The trained judge.
        untrained: The same judge on its base.
        train: What it was trained on; the baselines are fitted to it.
        validation: Examples for the calibration, which were not trained on.
        test: Examples for the figures, which were not trained on.
        held_out: Criteria that only the test has; they have a table of their own.
        audited: Whether the judge's repeatability is measured, and both judges are audited.
        on_progress: Called with the number done, the total, and what is measured.

    Raises:
        InvalidError: All verdicts of the trained judge failed.
    """

    def ask(one: Judge, examples: Sequence[Example], what: str) -> list[list[float | None]]:
        return probabilities(one, examples, _noted(on_progress, what), some=one is judge)

    fitted = validation if judge.mode == "readout" else ()  # a written verdict has no probability to calibrate
    calibration = _calibration(judged_labels(fitted, ask(judge, fitted, "calibration")))
    asked, raw = ask(judge, test, TRAINED), ask(untrained, test, UNTRAINED)
    pairs = list(questions(test))
    before, base = (_known(value for each in values for value in each) for values in (asked, raw))
    after = [
        calibration.value(target.criterion, score) if calibration else score
        for (_, target), score in zip(pairs, before, strict=True)
    ]
    on_progress(0, 1, "baselines")
    scores = {**baselines(list(questions(train)), pairs), UNTRAINED: base, TRAINED: after}
    calibrated = judge.model_copy(update={"calibration": calibration})
    return Examination(
        judge=calibrated,
        tables=tuple(_tables(pairs, scores, held_out)),
        calibration=_calibration_report(calibration, pairs, before, after) if fitted else None,
        agreement=agreement(pairs, after),
        repeatability=_run(calibrated, lambda engine: _repeatability(engine, calibrated)) if audited else None,
        audit=_audit(calibrated, TRAINED, on_progress) if audited else None,
        audit_untrained=_audit(untrained, UNTRAINED, on_progress) if audited else None,
        failed=sum(value is None for each in asked for value in each),
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [0.5 if value is None else value for value in values]


def judged_labels(examples: Sequence[Example], asked: Sequence[Sequence[float | None]]) -> list[JudgedLabel]:
    """Return each target as a label beside the judge's verdict."""
    groups = {name: number for number, name in enumerate(dict.fromkeys(one.split_group for one in examples))}
    return [
        _judged_label(number, groups[example.split_group], target, probability)
        for number, (example, values) in enumerate(zip(examples, asked, strict=True))
        for target, probability in zip(example.targets, values, strict=True)
    ]


def _judged_label(completion: int, prompt: int, target: Target, probability: float | None) -> JudgedLabel:
    key = target.criterion.key
    verdicts = {} if probability is None else {key: Verdict.scored(key, probability, probability=probability)}
    label = Label(criterion=key, annotator="target", value=target.value)
    return JudgedLabel(completion, prompt, 0, label, target.criterion, verdicts)


def _tables(pairs: Sequence[Question], scores: Mapping[str, Sequence[float]], held_out: Collection[str]) -> list[Table]:
    """Return the table of the whole test, of what was held out, and those by source, criterion and variant."""
    parts: tuple[tuple[str, str, By | None], ...] = (
        ("test", "all held-out questions", None),
        ("by data set", "held-out questions by data set", "source"),
        ("by criterion", f"by criterion or kind of criterion, with {MIN_PART} questions or more", "family"),
        ("by variant", f"questions by construction, by how the case was made, with {MIN_PART} or more", "variant"),
    )
    tables = [
        Table(name=name, description=text, rows=tuple(kept))
        for name, text, by in parts
        if (kept := rows(pairs, scores) if by is None else _large_parts(rows(pairs, scores, by=by)))
    ]
    places = [place for place, one in enumerate(pairs) if one[1].family_name in held_out]
    if places:
        part = {name: [values[place] for place in places] for name, values in scores.items()}
        text = "criteria and kinds of criteria that were not trained on"
        kept = rows([pairs[place] for place in places], part)
        tables.insert(1, Table(name="held-out criteria", description=text, rows=tuple(kept)))
    return tables


def _large_parts(found: Iterable[Row]) -> list[Row]:
    """Return the rows of parts with `MIN_PART` questions, without the AUROC where one class has too few of them."""
    large = (row for row in found if row.part and row.n >= MIN_PART)
    return [
        row
        if min(row.positives, row.n - row.positives) >= MIN_CLASS_FOR_AUROC
        else row.model_copy(update={"figures": row.figures | {"auroc": Figure(), "macro_auroc": Figure()}})
        for row in large
    ]


def _calibration(labels: Sequence[JudgedLabel]) -> Calibration | None:
    """Return the curves of a readout; None where there are too few labels, or no curve is better than none."""
    if len({label.prompt_id for label in labels if label.verdicts}) < MIN_PROMPTS:
        return None
    curves = {one.family: one.curve for one in calibrate(labels) if one.curve and one.curve.method != "none"}
    return Calibration(families=curves) if curves else None


def _calibration_report(
    calibration: Calibration | None, pairs: Sequence[Question], before: Sequence[float], after: Sequence[float]
) -> CalibrationReport:
    raw, calibrated = rows(pairs, {"before": before, "after": after})
    if calibration is None:
        part = "measured on the test; no curve was better than none on the validation part"
        return CalibrationReport(part=part, before=raw["ece"], bins_before=reliability(pairs, before))
    return CalibrationReport(
        part="fitted to the validation part, measured on the test",
        calibration=calibration,
        before=raw["ece"],
        after=calibrated["ece"],
        bins_before=reliability(pairs, before),
        bins_after=reliability(pairs, after),
    )


async def _repeatability(engine: Engine, judge: Judge) -> Repeatability:
    groups = group_completions((c.rubric, c.prompt, Completion(text=c.text)) for c in cases.built_in())[:40]
    return await measure(engine, judge, groups, source="built-in cases")


def _audit(judge: Judge, name: str, on_progress: OnProgress) -> Audit:
    plan = AuditPlan(cases.built_in(), suites.built_in(), ()).adapted(judge)
    noted = _noted(on_progress, f"audit, {name}")
    return _run(judge, lambda engine: runner.run(engine, judge, plan, on_progress=noted))


def _noted(on_progress: OnProgress, what: str) -> OnProgress:
    """Return the report of the progress of one of several measurements."""
    return lambda done, total, _: on_progress(done, total, what)


def _run(judge: Judge, work: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
    async def whole() -> T:
        async with aclosing(make_engine(judge)) as engine:
            return await work(engine)

    return asyncio.run(whole())
