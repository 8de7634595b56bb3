"""Faults of rubrics that can be found without a model. Each rule is a function; ``RULES`` has them by name.

To add a rule, write its texts and patterns into ``rules.toml``, and a function with ``@rule("its-name")`` in a module
that is imported below. The rules of wording are about English; they say nothing about other languages. `docs/lint.md`
lists every rule with its measured precision and recall.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.lint import duplicates, scales, wording  # noqa: F401 - they register
from rubricsvc.lint.registry import RULES, SEVERITIES, EmptyValue, Finding, Rule, Severity, Subject

__all__ = ["RULES", "SEVERITIES", "EmptyValue", "Finding", "Rule", "Severity", "lint", "rules_of"]


def lint(
    rubric: Rubric,
    prompt: Prompt | None = None,
    *,
    rules: Collection[Rule] | None = None,
    empty_value: EmptyValue | None = None,
) -> list[Finding]:
    """Return the findings in a rubric, the gravest first, then in the order of the criteria.

    Args:
        rubric: the rubric.
        prompt: its prompt; without one, rules that compare the two find nothing.
        rules: the rules to apply, by default all.
        empty_value: runs a criterion's check on an empty completion; without it no check is run.
    """
    subject = Subject(rubric, prompt, empty_value)
    place = {criterion.key: number for number, criterion in enumerate(rubric.criteria)}
    found = [finding for one in (RULES.values() if rules is None else rules) for finding in one.findings(subject)]
    return sorted(found, key=lambda one: (SEVERITIES.index(one.severity), place.get(one.criterion or "", -1)))


def rules_of(
    names: Collection[str] = (),
    ignored: Collection[str] = (),
    severity: Severity = "info",
    *,
    known: Mapping[str, Rule] = RULES,
) -> list[Rule]:
    """Return the ``known`` rules of these names (by default all), less the ignored ones and those below a severity."""
    for name in (*names, *ignored):
        rule_named(name, known)
    least = SEVERITIES.index(severity)
    chosen = [one for name, one in known.items() if (not names or name in names) and name not in ignored]
    return [one for one in chosen if SEVERITIES.index(one.severity) <= least]


def rule_named(name: str, known: Mapping[str, Rule] = RULES) -> Rule:
    """Return the ``known`` rule of this name."""
    if name not in known:
        raise InvalidError(f"unknown rule {name!r}", hint=f"expected one of {', '.join(sorted(known))}", path="rule")
    return known[name]
