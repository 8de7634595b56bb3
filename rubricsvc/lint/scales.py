"""Rules of scales and weights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from rubricsvc.core.formulas import FORMULAS
from rubricsvc.core.rubric import Binary, Criterion, Numeric, Ordinal
from rubricsvc.lint.registry import LintHit, Subject, pattern, rule
from rubricsvc.lint.wording import requirement

_SCALE = pattern("scale")
_IMPERATIVE = pattern("imperative")
_REPORTED = re.compile(r"\b(?:that|which|whereby|wherein|where|says|describes?|mentions?|explains?)\b", re.I)
_ABOUT = re.compile(r"\s*(?!is\b|does\b|uses\b)[A-Za-z]+(?:s|ing)\b", re.I)
"""The beginning of a sentence about the completion: “Asks …”, “Advises …”."""
_BAND = re.compile(r"^\D*(\d+)\s*(?:-|–|to)\s*(\d+)\D*$")


@rule("mixed-scale")
def _mixed_scale(subject: Subject) -> Iterator[LintHit]:
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


@rule("unreachable-level")
def _unreachable_level(subject: Subject) -> Iterator[LintHit]:
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


@rule("dominant-weight")
def _dominant_weight(subject: Subject) -> Iterator[LintHit]:
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


@rule("zero-weight")
def _zero_weight(subject: Subject) -> Iterator[LintHit]:
    for criterion in subject.rubric.criteria:
        if counts_for_nothing(subject, criterion):
            yield LintHit(criterion, "the weight is 0")


def counts_for_nothing(subject: Subject, criterion: Criterion) -> bool:
    """Return whether no verdict on the criterion changes the reward."""
    formula = FORMULAS.get(subject.rubric.formula)
    weighted = formula is not None and formula.weighting == "absolute" and subject.rubric.expression is None
    return weighted and criterion.weight == 0.0 and not criterion.required


@rule("empty-passes")
def _empty_passes(subject: Subject) -> Iterator[LintHit]:
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
