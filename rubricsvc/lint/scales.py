"""Rules of scales and weights."""

import re
from collections.abc import Iterator
from itertools import pairwise

from rubricsvc.core.reward import FORMULAS
from rubricsvc.core.rubric import Criterion, Numeric, Ordinal
from rubricsvc.lint.registry import Language, LintHit, Subject
from rubricsvc.lint.wording import requirement

DOMINANT_SHARE = 0.5  # of the positive weight, above which one criterion decides the reward
MET = 0.5  # value from which a criterion counts as met
_BAND = re.compile(r"^\D*(\d+)\s*(?:-|–|to|bis|à)\s*(\d+)\D*$")


def mixed_scale(criterion: Criterion, language: Language) -> str | None:
    """Return how the scale that the text asks for differs from the criterion's own."""
    found, scale = _asked_scale(criterion, language), criterion.scale
    if found is None:
        return None
    numbers = [float(one) for one in found.groups() if one]
    if isinstance(scale, Numeric):
        named = f"{scale.low:g} to {scale.high:g}"
        fits = len(numbers) != 2 or (scale.low, scale.high) == (min(numbers), max(numbers))
    elif isinstance(scale, Ordinal):
        named = ", ".join(level.label for level in scale.levels)
        labels = {float(one) for level in scale.levels for one in re.findall(r"\d+(?:\.\d+)?", level.label)}
        fits = bool(labels) and set(numbers) <= labels | {float(len(scale.levels))}
    else:
        named, fits = "met or not met", len(numbers) == 2 and {*numbers} == {0.0, 1.0}
    return None if fits else f"“{' '.join(found[0].split())}” in the text, and the scale is {named}"


def _asked_scale(criterion: Criterion, language: Language) -> re.Match[str] | None:
    """Return the scale that the text asks the judge to use; one that the completion must discuss does not count."""
    text = requirement(criterion.text, language)
    for found in language["scale"].finditer(text):
        start = max(0, found.start() - 12)
        before = text[: found.start()].rsplit(". ", 1)[-1]
        if language["reported"].search(before) or language["about"].match(before):
            continue
        imperatives = language["imperative"].finditer(text[: found.end()])
        if any(start <= one.start() <= found.start() + 1 for one in imperatives):
            return found
    return None


def unreachable_level(subject: Subject) -> Iterator[LintHit]:
    """Find levels that no completion reaches or that a judge cannot tell apart."""
    for criterion in subject.rubric.criteria:
        scale, check = criterion.scale, criterion.check
        if isinstance(scale, Ordinal) and check is not None:
            yield criterion, f"the check {check.name} gives a number, and the levels are never used"
        if not isinstance(scale, Ordinal) or check is not None:
            continue
        described = [level for level in scale.levels if level.text.strip()]
        seen: dict[str, str] = {}
        for level in described:
            text = " ".join(level.text.split()).casefold().strip(" .")
            if text in seen:
                yield criterion, f"levels {seen[text]!r} and {level.label!r} have the same description"
            seen.setdefault(text, level.label)
        if described and len(described) < len(scale.levels):
            missing = next(level.label for level in scale.levels if not level.text.strip())
            yield criterion, f"level {missing!r} has no description, and others have one"
        if (best := max(level.value for level in scale.levels)) < 1.0:
            yield criterion, f"the best level has the value {best:g}: nothing gets full credit"
        found = [_BAND.match(level.label) for level in scale.levels]
        bands = sorted((int(one[1]), int(one[2])) for one in found if one)  # levels of numbers, such as 1-2 and 3-4
        for (_, high), (low, _) in pairwise(bands) if len(bands) == len(scale.levels) else ():
            if low > high + 1:
                yield criterion, f"no level has the numbers between {high} and {low}"
            elif low < high:
                yield criterion, f"the bands overlap at {low}"


def dominant_weight(subject: Subject) -> Iterator[LintHit]:
    """Find one criterion that decides the reward alone."""
    rubric = subject.rubric
    if rubric.groups or rubric.expression is not None:
        return  # the tree or the expression decides what a weight means
    for positive in (True, False):
        side = [one for one in rubric.criteria if one.weight and (one.weight > 0) is positive]
        total = sum(abs(one.weight) for one in side)
        for criterion in side if len(side) >= 3 else ():
            if abs(criterion.weight) > DOMINANT_SHARE * total and len({abs(one.weight) for one in side}) > 1:
                kind, share = "positive" if positive else "negative", abs(criterion.weight) / total
                yield criterion, f"has {share:.0%} of the {kind} weight of {len(side)} criteria"


def zero_weight(subject: Subject) -> Iterator[LintHit]:
    """Find criteria of which no verdict changes the reward."""
    formula = FORMULAS.get(subject.rubric.formula)
    if formula is None or formula.weighting != "absolute" or subject.rubric.expression is not None:
        return
    for criterion in subject.rubric.criteria:
        if criterion.weight == 0.0 and not criterion.required:
            yield criterion, "the weight is 0"


def empty_passes(subject: Subject) -> Iterator[LintHit]:
    """Find checks that an empty completion passes, unless a required check vetoes it."""
    if subject.empty_value is None:
        return
    checked = [(one, one.check.name) for one in subject.rubric.criteria if one.check is not None and one.weight > 0]
    values = [(one, name, subject.empty_value(one, subject.prompt)) for one, name in checked]
    if any(one.required and value is not None and value < MET for one, _, value in values):
        return  # a veto: an empty text gets nothing
    for criterion, name, value in values:
        if value is not None and value >= MET and not criterion.required:
            yield criterion, f"the check {name} gives an empty text {value:g}"
