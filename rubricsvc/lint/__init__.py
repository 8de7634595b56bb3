"""Faults of rubrics that can be found without a model. ``RULES`` is the table of rules.

To add a rule, write its texts into ``rules.toml``, its patterns into the files of ``languages``, its function into a
module of this package, and a row into the table. `docs/lint.md` lists every rule, with precision and recall.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.lint import duplicates, scales, wording
from rubricsvc.lint.registry import ADVICE, CHECKED, SEVERITIES, EmptyValue, Find, Finding, Language, Severity, Subject

__all__ = ["CHECKED", "RULES", "SEVERITIES", "EmptyValue", "Finding", "Rule", "Severity", "lint", "rules_of"]

Placed = tuple[str, Finding]  # a finding with the name of its rubric
OfText = Callable[[Criterion, Language], str | None]  # what is wrong with a text that a judge reads, by its language


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
    find: Find

    def finding(self, criterion: Criterion | None, message: str, severity: Severity | None = None) -> Finding:
        """Return the finding of a hit, by default of the severity of the rule."""
        return Finding(
            rule=self.name,
            severity=severity or self.severity,
            criterion=criterion.key if criterion else None,
            message=message,
            fix=self.fix,
        )


def _each(of_text: OfText) -> Find:
    return lambda subject: (
        (one, message) for one in subject.judged if (message := of_text(one, subject.languages[one.key]))
    )


_FIND: dict[str, Find] = {
    "two-questions": _each(wording.second_question),
    "sign": _each(wording.sign),
    "absence": _each(wording.absence),
    "double-negation": _each(partial(wording.match, name="double", message="negates twice")),
    "dangling-reference": _each(
        partial(wording.match, name="dangling", message="points at something that the judge does not see")
    ),
    "scoring-instruction": _each(
        partial(wording.match, name="instruction", message="instructs the judge how to reply", whole=True)
    ),
    "vague": _each(wording.vague),
    "unknown-placeholder": _each(wording.unknown_placeholder),
    "too-long": _each(wording.too_long),
    "invisible-text": _each(wording.invisible_text),
    "mixed-scale": _each(scales.mixed_scale),
    "near-duplicate": duplicates.near_duplicate,
    "contradiction": duplicates.contradiction,
    "unchecked-language": wording.unchecked_language,
    "leaked-answer": wording.leaked_answer,
    "unreachable-level": scales.unreachable_level,
    "dominant-weight": scales.dominant_weight,
    "zero-weight": scales.zero_weight,
    "empty-passes": scales.empty_passes,
}
RULES: dict[str, Rule] = {name: Rule(name=name, find=_FIND[name], **texts) for name, texts in ADVICE.items()}


def lint(
    rubric: Rubric,
    prompt: Prompt | None = None,
    *,
    rules: Collection[Rule] | None = None,
    empty_value: EmptyValue | None = None,
) -> list[Finding]:
    """Return the findings in a rubric, the most severe first, then in the order of the criteria.

    Without a prompt, rules that compare the two find nothing; without ``empty_value`` no check is run.
    """
    subject = Subject(rubric, prompt, empty_value)
    place = {criterion.key: number for number, criterion in enumerate(rubric.criteria)}
    chosen = RULES.values() if rules is None else rules
    found = [rule.finding(*hit) for rule in chosen for hit in rule.find(subject)]
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


def by_rule(findings: Iterable[Placed], rubrics: int) -> tuple[list[Placed], list[list[Placed]]]:
    """Return the findings of a set to look at first, and all by rule: the most severe first, then the rarest.

    First are errors, then others by severity, of each rule by turns. A rule that finds something in more than half of
    the rubrics, and is no error, has none there: it is about the whole set.
    """
    groups: defaultdict[tuple[str, Severity], list[Placed]] = defaultdict(list)
    for name, one in findings:
        groups[one.rule, one.severity].append((name, one))
    ranked = sorted(groups.values(), key=lambda group: (SEVERITIES.index(group[0][1].severity), len(group)))
    turns: list[tuple[int, int, int, Placed]] = []
    for place, group in enumerate(ranked):
        severity = SEVERITIES.index(group[0][1].severity)
        if severity == 0 or 2 * len({name for name, _ in group}) <= rubrics:
            turns += [(severity, turn, place, one) for turn, one in enumerate(group)]
    return [one for *_, one in sorted(turns, key=lambda one: one[:3])], ranked
