"""Faults of rubrics that can be found without a model. ``RULES`` is the table of rules.

To add a rule, write its texts and patterns into ``rules.toml``, its function into a module of this package, and a row
into the table. The rules of wording are about English; they say nothing about other languages. `docs/lint.md` lists
every rule with its measured precision and recall.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.lint import duplicates, scales, wording
from rubricsvc.lint.registry import ADVICE, SEVERITIES, EmptyValue, Finding, LintHit, Severity, Subject

__all__ = ["RULES", "SEVERITIES", "EmptyValue", "Finding", "Rule", "Severity", "lint", "rules_of"]

OfText = Callable[[Criterion], str | None]
"""What is wrong with the text of a criterion that a judge reads."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: what it finds, why that matters, how to fix it, and an example before and after."""

    name: str
    severity: Severity
    summary: str
    why: str
    fix: str
    bad: str
    good: str
    find: Callable[[Subject], Iterable[LintHit]] | None = None
    of_text: OfText | None = None

    def findings(self, subject: Subject) -> list[Finding]:
        """Return the findings in a rubric, in the order of its criteria."""
        hits = self.find(subject) if self.find else ()
        if self.of_text:
            messages = ((criterion, self.of_text(criterion)) for criterion in subject.judged)
            hits = ((criterion, message) for criterion, message in messages if message)
        return [
            Finding(
                rule=self.name,
                severity=self.severity,
                criterion=criterion.key if criterion else None,
                message=message,
                fix=self.fix,
            )
            for criterion, message in hits
        ]


_OF_TEXT: dict[str, OfText] = {
    "two-questions": lambda one: wording.second_question(one.text, pitfall=one.weight < 0),
    "sign": wording.sign,
    "absence": wording.absence,
    "double-negation": wording.matches("double", "negates twice"),
    "dangling-reference": wording.matches("dangling", "points at something that the judge does not see"),
    "scoring-instruction": wording.matches("instruction", "instructs the judge how to reply", whole=True),
    "vague": wording.vague,
    "unknown-placeholder": wording.unknown_placeholder,
    "too-long": wording.too_long,
    "invisible-text": wording.invisible_text,
    "mixed-scale": scales.mixed_scale,
}
_OF_RUBRIC: dict[str, Callable[[Subject], Iterable[LintHit]]] = {
    "near-duplicate": duplicates.near_duplicate,
    "leaked-answer": wording.leaked_answer,
    "unreachable-level": scales.unreachable_level,
    "dominant-weight": scales.dominant_weight,
    "zero-weight": scales.zero_weight,
    "empty-passes": scales.empty_passes,
}
RULES: dict[str, Rule] = {
    name: Rule(name=name, find=_OF_RUBRIC.get(name), of_text=_OF_TEXT.get(name), **texts)
    for name, texts in ADVICE.items()
}


def lint(
    rubric: Rubric,
    prompt: Prompt | None = None,
    *,
    rules: Collection[Rule] | None = None,
    empty_value: EmptyValue | None = None,
) -> list[Finding]:
    """Return the findings in a rubric, the most severe first, then in the order of the criteria.

    Without a prompt, rules that compare it with the rubric find nothing; ``empty_value`` runs a criterion's check on an
    empty completion, without it no check is run.
    """
    subject = Subject(rubric, prompt, empty_value)
    place = {criterion.key: number for number, criterion in enumerate(rubric.criteria)}
    found = [finding for one in (RULES.values() if rules is None else rules) for finding in one.findings(subject)]
    return sorted(found, key=lambda one: (SEVERITIES.index(one.severity), place.get(one.criterion or "", -1)))


def rules_of(names: Collection[str] = (), ignored: Collection[str] = (), severity: Severity = "info") -> list[Rule]:
    """Return the rules of these names (by default all), less the ignored ones and those below a severity."""
    for name in (*names, *ignored):
        if name not in RULES:
            hint = f"expected one of {', '.join(sorted(RULES))}"
            raise InvalidError(f"unknown rule {name!r}", hint=hint, path="rule")
    least = SEVERITIES.index(severity)
    chosen = [one for name, one in RULES.items() if (not names or name in names) and name not in ignored]
    return [one for one in chosen if SEVERITIES.index(one.severity) <= least]
