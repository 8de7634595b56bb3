"""Rules of the linter that a judge decides: a rubric about criteria, `criterion_rules.yaml`.

Each criterion of a rubric is a completion, which the judge scores by what each rule asks, on the path of all scores. A
value below the rule's threshold is a finding; what has no value is not measured, and never a finding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import Field

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Binary, Criterion, Ordinal, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.lint import Finding, Rule
from rubricsvc.lint.registry import Subject
from workers.authoring.planted_faults import reason_of
from workers.engines.base import Engine
from workers.packaged_yaml import load_yaml
from workers.scoring.completions import score

_DATA: dict[str, Any] = load_yaml("workers.authoring", "criterion_rules.yaml")


@dataclass(frozen=True, slots=True)
class ModelRule(Rule):
    """A rule that a judge decides: what it is asked about a criterion, and the least value that keeps the rule.

    Without a judge it finds nothing. One ``with_prompt`` is only asked about the rubric of a prompt.
    """

    asks: str
    threshold: float
    with_prompt: bool


class ModelFinding(Finding):
    """A finding by a judge."""

    judge: str = Field(description="Name of the judge.")
    value: float = Field(description="Value in [0, 1] that the judge gave the criterion; 1 keeps the rule.")
    probability: float | None = Field(description="Probability of the verdict; null if it has none.")


class Unmeasured(NamedTuple):
    """A rule that could not be decided for a criterion, and why."""

    rule: ModelRule
    criterion: str
    reason: str


class ModelLint(NamedTuple):
    """What a judge has to say about a rubric: findings, what is not measured, and all verdicts."""

    findings: list[ModelFinding]
    unmeasured: list[Unmeasured]
    verdicts: list[Verdict]


MODEL_RULES: dict[str, ModelRule] = {
    f"model/{name}": ModelRule(
        name=f"model/{name}",
        severity="warning",
        find=lambda _subject: (),
        threshold=_DATA["threshold"],
        **{"with_prompt": False, **fields},
    )
    for name, fields in _DATA["rules"].items()
}
"""The rules that a judge decides, by name."""


def rubric_of(rules: Iterable[ModelRule]) -> Rubric:
    """Return the rubric about criteria that these rules are."""
    return Rubric(criteria=tuple(Criterion(key=one.name, text=one.asks) for one in rules))


async def lint_by_model(
    engine: Engine, judge: Judge, rules: Sequence[Rule], subject: Subject, *, on_done: Callable[[], None] = lambda: None
) -> ModelLint:
    """Return what the judge finds in a rubric by those of the rules that are its own.

    Args:
        engine: the judge's engine.
        judge: the judge.
        rules: the rules to apply.
        subject: the rubric with its prompt.
        on_done: called after each criterion.
    """
    found = ModelLint([], [], [])
    asked = {one.name: one for one in rules if isinstance(one, ModelRule)}
    if subject.prompt is None:
        asked = {name: one for name, one in asked.items() if not one.with_prompt}
    if not asked:
        return found
    rubric, task = rubric_of(asked.values()), _task(subject.prompt)

    async def judged(criterion: Criterion) -> list[Verdict]:
        verdicts = await score(engine, judge, rubric, task, Completion(text="\n".join(_lines(criterion))))
        on_done()
        return verdicts

    by_criterion = await asyncio.gather(*map(judged, subject.judged))
    for criterion, verdicts in zip(subject.judged, by_criterion, strict=True):
        found.verdicts.extend(verdicts)
        for verdict in verdicts:
            rule = asked[verdict.criterion]
            if verdict.value is None:
                found.unmeasured.append(Unmeasured(rule, criterion.key, reason_of(verdict) or ""))
            elif verdict.value < rule.threshold:
                found.findings.append(_finding(rule, criterion, judge, verdict, verdict.value))
    return found


def _finding(rule: ModelRule, criterion: Criterion, judge: Judge, verdict: Verdict, value: float) -> ModelFinding:
    return ModelFinding(
        rule=rule.name,
        severity=rule.severity,
        criterion=criterion.key,
        message=f"{rule.summary} ({judge.name}: {value:.2f})",
        fix=rule.fix,
        judge=judge.name,
        value=value,
        probability=verdict.best_probability,
    )


def _task(prompt: Prompt | None) -> Prompt:
    """Return the task whose completions are criteria; the prompt of the rubric is shown in it."""
    seen = ["the request", "the response"]
    if prompt is not None:
        seen += ["documents"] * bool(prompt.documents) + ["a reference answer"] * (prompt.reference is not None)
    request = "any request" if prompt is None else "the request below"
    text = _DATA["task"].format(request=request, seen=f"{', '.join(seen[:-1])} and {seen[-1]}")
    return Prompt.of(text if prompt is None else f"{text}\n\nThe request:\n\n{prompt.text}")


def _lines(criterion: Criterion) -> Iterator[str]:
    """Yield a criterion as the judge reads it: all that its verdicts depend on, and its weight."""
    yield criterion.text
    if isinstance(criterion.scale, Ordinal):
        yield from (f"- {level.label} ({level.value:g}): {level.text}" for level in criterion.scale.levels)
    elif not isinstance(criterion.scale, Binary):
        yield f"(a number from {criterion.scale.low:g} to {criterion.scale.high:g})"
    if criterion.reference is not None:
        yield f"Reference: {criterion.reference}"
    yield from (f"Evidence: {passage}" for passage in criterion.passages or ())
    meaning = "gains" if criterion.weight > 0 else "loses" if criterion.weight < 0 else "neither gains nor loses"
    yield f"(weight: {criterion.weight:+g}; a response that meets it {meaning})"
