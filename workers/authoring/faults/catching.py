"""Asks a judge about planted faults, and counts how many it catches under each criterion."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from rubricsvc.core.audit import Rate
from rubricsvc.core.rubric import Criterion, Rubric, nearest_level
from rubricsvc.core.rubric_example import NumberRange
from rubricsvc.core.rubric_test import CriterionFaults, ExampleTest, FaultReport, FaultTest
from rubricsvc.stats.intervals import rate
from workers.authoring.faults.rules import Fault, GoodExample
from workers.authoring.rubric_tests import RubricTester, reason_of

_Place = tuple[str, str]
"""The keys of an example and of a criterion."""

NO_BASE = "no example says that a completion is good by it"
NO_RULE = "no rule makes a fault: add `evidence` to an example, or write faults with --faults-by"
NOT_WRITTEN = "the model wrote no fault"


async def catch_faults(tester: RubricTester, faults: Sequence[Fault]) -> list[FaultTest]:
    """Return what the judge finds in each text with a fault."""

    async def run(fault: Fault) -> FaultTest:
        base, key = fault.base, fault.base.criterion.key
        verdicts = await tester.verdicts(base.example, fault.text, {key})
        (verdict,) = (one for one in verdicts if one.criterion == key)
        return FaultTest(
            example=base.example.key,
            criterion=key,
            kind=fault.kind,
            text=fault.text,
            found=verdict.value,
            caught=None if verdict.outcome == "failed" else is_worse(base.criterion, base.expected, verdict.value),
            reason=reason_of(verdict),
        )

    return list(await asyncio.gather(*map(run, faults)))


def is_worse(criterion: Criterion, expected: NumberRange, value: float | None) -> bool:
    """Return whether a verdict is worse than expected: lower, of a pitfall higher. An abstention is not."""
    if value is None:
        return False
    found = nearest_level(criterion.scale, value)
    if criterion.weight < 0:
        return found not in NumberRange(max=expected.max)
    return found not in NumberRange(min=expected.min)


def fault_report(
    rubric: Rubric,
    bases: Sequence[GoodExample],
    found: Sequence[FaultTest],
    examples: Sequence[ExampleTest],
    *,
    min_catch: float | None = None,
    no_fault: str = NO_RULE,
) -> FaultReport:
    """Return the catch rate of each criterion, and how often the judge saw a fault in a base without one.

    Args:
        rubric: The rubric.
        bases: Good examples, by criterion.
        found: Verdicts on the faults.
        examples: Verdicts on the examples themselves.
        min_catch: Least catch rate that passes.
        no_fault: Why a criterion with a base has no fault.
    """
    alarms = _alarms(bases, examples)
    parts = []
    for key, criterion in rubric.by_key.items():
        own = [one for one in found if one.criterion == key]
        reason = NO_BASE
        if any(base.criterion.key == key for base in bases):
            reason = no_fault if criterion.check is None else NO_RULE
        rates = _rates(own, {place: alarm for place, alarm in alarms.items() if place[1] == key})
        unmeasured = sum(one.caught is None for one in own)
        skipped = None if own else reason
        parts.append(CriterionFaults(criterion=key, unmeasured=unmeasured, skipped=skipped, **rates))
    return FaultReport(criteria=tuple(parts), faults=tuple(found), min_catch=min_catch, **_rates(found, alarms))


def _alarms(bases: Sequence[GoodExample], examples: Sequence[ExampleTest]) -> dict[_Place, bool | None]:
    """Return whether the judge saw a fault in each base without one; None: not measured.

    A written example is no example of the rubric: its bases are what the judge found good.
    """
    values = {(one.example, verdict.criterion): verdict for one in examples for verdict in one.verdicts}
    alarms: dict[_Place, bool | None] = {}
    for base in bases:
        if (verdict := values.get((base.example.key, base.criterion.key))) is not None:
            worse = is_worse(base.criterion, base.expected, verdict.found)
            alarms[base.example.key, base.criterion.key] = None if verdict.passed is None else worse
    return alarms


def _rates(found: Sequence[FaultTest], alarms: Mapping[_Place, bool | None]) -> dict[str, Rate]:
    """Return the rates of faults that were caught, of those caught where no fault was seen before, and of alarms."""
    caught = [one for one in found if one.caught is not None]
    unseen = [one for one in caught if alarms.get((one.example, one.criterion), False) is False]
    measured = [alarm for alarm in alarms.values() if alarm is not None]
    return {
        "caught": rate(sum(one.caught is True for one in caught), len(caught)),
        "noticed": rate(sum(one.caught is True for one in unseen), len(unseen)),
        "false_alarms": rate(sum(measured), len(measured)),
    }
