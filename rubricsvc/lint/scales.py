"""Rules of scales and weights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from rubricsvc.core.formulas import FORMULAS, absolute_weights
from rubricsvc.core.rubric import Binary, Criterion, Numeric, Ordinal
from rubricsvc.lint.registry import LintHit, Subject, rule
from rubricsvc.lint.wording import requirement

_NUMBER = r"(\d+(?:\.\d+)?)"
_TO = r" ?(?:-|–|—|to|and|through) ?"
_SCALE = re.compile(
    rf"\b(?:scale|range) (?:of|from|between)? ?{_NUMBER}{_TO}{_NUMBER}"
    rf"|\b(?:scor(?:e|ed|ing)|rat(?:e|ed|ing)|grad(?:e|ed|ing)|points?|give|assign|award)(?: \w+){{0,4}}? (?:of "
    rf"|from |between |on )?{_NUMBER}{_TO}{_NUMBER}(?: points?)?\b"
    rf"|\b{_NUMBER}[- ]points? (?:likert |rating |)scale"
    rf"|\b(?:score|rate|rating|grade)\w*(?: \w+){{0,4}} out of {_NUMBER}\b"
    rf"|\b(?:give|assign|award|deduct|earns?)s? (?:it |up to |a maximum of )*{_NUMBER} (?:points?|marks?)"
    rf"|\b(?:give|assign|award) {_NUMBER}, {_NUMBER},? (?:and|or) {_NUMBER} (?:points?|marks?)"
    rf"|(?<![\d/]){_NUMBER}/\1 (?:if|for|when)\b|(?<![\d/])(?:5/5|10/10|100/100) (?:if|for|when)\b",
    re.I,
)
_IMPERATIVE = re.compile(
    r"(?:^|[.;:!?]\s+|\n\s*|\b(?:please|and|then|to be|is|are|on a|on the) )"
    r"(?:score|rate|grade|give|assign|award|deduct|on a|on the|use a|scale|\d+/\d+|scored|rated|graded"
    r"|\d+[- ]point|points)",
    re.I,
)
_REPORTED = re.compile(r"\b(?:that|which|whereby|wherein|where|says|describes?|mentions?|explains?)\b", re.I)
_ABOUT = re.compile(r"\s*(?!is\b|does\b|uses\b)[A-Za-z]+(?:s|ing)\b", re.I)
"""The beginning of a sentence about the completion: “Asks …”, “Advises …”."""
_BAND = re.compile(r"^\D*(\d+)\s*(?:-|–|to)\s*(\d+)\D*$")


@rule(
    "mixed-scale",
    "error",
    why="The judge is asked for a verdict on the criterion's own scale. A text that asks for another one gets"
    " replies that cannot"
    " be read, or that are read wrongly.",
    fix="Give the criterion the scale that its text names (scale: [0, 10]), or take the scale out of the text.",
    bad="Rate the clarity from 0 to 10. (scale: binary)",
    good="Clarity of the argument. (scale: [0, 10])",
)
def mixed_scale(subject: Subject) -> Iterator[LintHit]:
    """Find texts that name another scale than the criterion has."""
    for criterion in subject.judged:
        if (found := _asked_scale(criterion)) and not _fits(criterion, [float(one) for one in found.groups() if one]):
            yield LintHit(
                criterion, f"“{' '.join(found[0].split())}” in the text, and the scale is {_named(criterion)}"
            )


def _asked_scale(criterion: Criterion) -> re.Match[str] | None:
    """Return the scale that the text asks the judge to use; one that the completion must discuss does not count."""
    text = requirement(criterion.text)
    for found in _SCALE.finditer(text):
        start = max(0, found.start() - 12)
        before = text[: found.start()].rsplit(". ", 1)[-1]
        if _REPORTED.search(before) or _ABOUT.match(before):
            continue
        if any(start <= one.start() <= found.start() + 1 for one in _IMPERATIVE.finditer(text[: found.end()])):
            return found
    return None


def _fits(criterion: Criterion, numbers: list[float]) -> bool:
    scale = criterion.scale
    if isinstance(scale, Numeric):
        return len(numbers) != 2 or (scale.low, scale.high) == (min(numbers), max(numbers))
    if isinstance(scale, Ordinal):
        labels = {float(one) for level in scale.levels for one in re.findall(r"\d+(?:\.\d+)?", level.label)}
        return bool(labels) and set(numbers) <= labels | {float(len(scale.levels))}
    return len(numbers) == 2 and {*numbers} == {0.0, 1.0}


def _named(criterion: Criterion) -> str:
    scale = criterion.scale
    if isinstance(scale, Numeric):
        return f"{scale.low:g} to {scale.high:g}"
    return "met or not met" if isinstance(scale, Binary) else ", ".join(level.label for level in scale.levels)


@rule(
    "unreachable-level",
    "warning",
    why="A level that cannot be distinguished from another, or that nothing can reach, is dead: its value is never a"
    " reward, and what"
    " belongs there is put into another level.",
    fix="Describe each level by what a completion of that level has, and give the best one the value 1 and the"
    " worst one 0.",
    bad="poor: 0, fair: 0.5 (Some errors.), good: 1 (Some errors.)",
    good="poor: 0 (Four errors or more.), fair: 0.5 (One to three errors.), good: 1 (No errors.)",
)
def unreachable_level(subject: Subject) -> Iterator[LintHit]:
    """Find levels that no completion can get."""
    for criterion in subject.rubric.criteria:
        if isinstance(criterion.scale, Ordinal):
            for message in _dead_levels(criterion, criterion.scale):
                yield LintHit(criterion, message)


def _dead_levels(criterion: Criterion, scale: Ordinal) -> Iterator[str]:
    if criterion.check is not None:
        yield f"the check {criterion.check.name} gives a number, and the levels are never used"
        return
    described = [level for level in scale.levels if level.text.strip()]
    seen: dict[str, str] = {}
    for level in described:
        text = " ".join(level.text.split()).casefold().strip(" .")
        if text in seen:
            yield f"levels {seen[text]!r} and {level.label!r} have the same description"
        seen.setdefault(text, level.label)
    if described and len(described) < len(scale.levels):
        missing = next(level.label for level in scale.levels if not level.text.strip())
        yield f"level {missing!r} has no description, and others have one"
    values = [level.value for level in scale.levels]
    if max(values) < 1.0:
        yield f"the best level has the value {max(values):g}: nothing gets full credit"
    yield from _band_gaps(scale)


def _band_gaps(scale: Ordinal) -> Iterator[str]:
    """Yield what is wrong with levels that are bands of numbers, such as 1-2 and 3-4."""
    found = [_BAND.match(level.label) for level in scale.levels]
    bands = sorted((int(one[1]), int(one[2])) for one in found if one)
    if len(bands) < len(scale.levels):
        return
    for (_, high), (low, _) in pairwise(bands):
        if low > high + 1:
            yield f"no level has the numbers between {high} and {low}"
        elif low < high:
            yield f"the bands overlap at {low}"


DOMINANT_SHARE = 0.5
"""Of the positive weight, above which one criterion decides the reward."""
MET = 0.5
"""Value from which a criterion counts as met."""


@rule(
    "dominant-weight",
    "warning",
    why="The reward is then this one verdict, with its errors; the others hardly move it, and a policy learns"
    " nothing from them.",
    fix="Divide the criterion, lower its weight, or make it required if nothing counts without it.",
    bad="weights 10, 1, 1, 1",
    good="weights 4, 3, 2, 1",
)
def dominant_weight(subject: Subject) -> Iterator[LintHit]:
    """Find one criterion with more than half of the weight, among three or more."""
    rubric = subject.rubric
    if rubric.groups or rubric.expression is not None:
        return  # the tree or the expression decides what a weight means
    for positive in (True, False):
        side = [one for one in rubric.criteria if one.weight and (one.weight > 0) is positive]
        total = sum(abs(one.weight) for one in side)
        for criterion in side if len(side) >= 3 else ():
            if abs(criterion.weight) > DOMINANT_SHARE * total and len({abs(one.weight) for one in side}) > 1:
                kind = "positive" if positive else "negative"
                share = abs(criterion.weight) / total
                yield LintHit(criterion, f"has {share:.0%} of the {kind} weight of {len(side)} criteria")


@rule(
    "zero-weight",
    "info",
    why="It is judged and paid for, and never changes a reward.",
    fix="Give it a weight, or remove it.",
    bad="Names the author. (weight 0)",
    good="Names the author. (weight 1)",
)
def zero_weight(subject: Subject) -> Iterator[LintHit]:
    """Find criteria that never change the reward."""
    for criterion in subject.rubric.criteria:
        if counts_for_nothing(subject, criterion):
            yield LintHit(criterion, "the weight is 0")


def counts_for_nothing(subject: Subject, criterion: Criterion) -> bool:
    """Return whether no verdict on the criterion changes the reward."""
    formula = FORMULAS.get(subject.rubric.formula)
    weighted = formula is not None and formula.weights is absolute_weights and subject.rubric.expression is None
    return weighted and criterion.weight == 0.0 and not criterion.required


@rule(
    "empty-passes",
    "error",
    why="A completion that says nothing earns this weight. A policy finds that out before it learns anything else.",
    fix="Add a check that an empty text fails, such as check: {words: {min: 20}} with required: true, or make the"
    " criterion a pitfall.",
    bad="check: {words: {max: 200}}, weight 2",
    good="check: {words: {min: 20, max: 200}}, weight 2",
)
def empty_passes(subject: Subject) -> Iterator[LintHit]:
    """Find checks with a positive weight that an empty text meets."""
    if subject.empty_value is None:
        return
    checked = [one for one in subject.rubric.criteria if one.check is not None]
    values = {one.key: subject.empty_value(one, subject.prompt) for one in checked}
    if any(one.required and one.weight > 0 and _below(values[one.key]) for one in checked):
        return  # a veto: an empty text gets nothing
    for criterion in checked:
        value = values[criterion.key]
        if criterion.weight > 0 and not criterion.required and value is not None and value >= MET:
            yield LintHit(
                criterion, f"the check {criterion.check and criterion.check.name} gives an empty text {value:g}"
            )


def _below(value: float | None) -> bool:
    return value is not None and value < MET
