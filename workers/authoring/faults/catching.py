"""Asks a judge about planted faults, and counts how many it catches under each criterion."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from rubricsvc.core.rubric import Criterion, Rubric, nearest_level
from rubricsvc.core.rubric_example import NumberRange
from rubricsvc.core.rubric_test import CriterionFaults, ExampleTest, FaultReport, FaultTest
from rubricsvc.stats.intervals import rate
from workers.authoring.faults.rules import Base, Fault
from workers.authoring.rubric_tests import RubricTester, reason_of

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
    bases: Sequence[Base],
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
    values = {(one.example, verdict.criterion): verdict for one in examples for verdict in one.verdicts}
    alarms = {
        (base.example.key, base.criterion.key): is_worse(base.criterion, base.expected, verdict.found)
        for base in bases
        if (verdict := values.get((base.example.key, base.criterion.key))) is not None and verdict.passed is not None
    }
    parts = tuple(
        _of_criterion(key, bases, [one for one in found if one.criterion == key], alarms, no_fault)
        for key in rubric.by_key
    )
    caught = [one.caught for one in found if one.caught is not None]
    total = {"caught": rate(sum(caught), len(caught)), "false_alarms": rate(sum(alarms.values()), len(alarms))}
    return FaultReport(criteria=parts, faults=tuple(found), min_catch=min_catch, **total)


def _of_criterion(
    key: str,
    bases: Sequence[Base],
    found: Sequence[FaultTest],
    alarms: Mapping[tuple[str, str], bool],
    no_fault: str,
) -> CriterionFaults:
    caught = [one.caught for one in found if one.caught is not None]
    own = [alarm for (_, criterion), alarm in alarms.items() if criterion == key]
    has_base = any(base.criterion.key == key for base in bases)
    return CriterionFaults(
        criterion=key,
        caught=rate(sum(caught), len(caught)),
        false_alarms=rate(sum(own), len(own)),
        unmeasured=len(found) - len(caught),
        skipped=None if found else no_fault if has_base else NO_BASE,
    )
