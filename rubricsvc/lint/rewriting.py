"""Rewrites that change no meaning: what `rubricsvc rubrics lint --fix` writes."""

from __future__ import annotations

from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.untrusted import INVISIBLE
from rubricsvc.lint.duplicates import is_copy
from rubricsvc.lint.polarity import without_double_negation
from rubricsvc.lint.registry import Subject
from rubricsvc.lint.weights import counts_for_nothing


def rewritten(rubric: Rubric) -> tuple[Rubric, list[str]]:
    """Return the rubric with all safe rewrites, and what was done, a line for each; nothing done is the same rubric.

    Copies of a criterion are merged and their weights added up, criteria that count for nothing are removed, invisible
    characters are removed, and “should not fail to” becomes “should”. Rewards stay what they were, unless the judge
    reads a clearer text in another way.
    """
    done: list[str] = []
    kept: list[Criterion] = []
    subject = Subject(rubric)
    for criterion in rubric.criteria:
        if counts_for_nothing(subject, criterion):
            done.append(f"{criterion.key}: removed, its weight is 0")
            continue
        copied = next((place for place, one in enumerate(kept) if is_copy(subject, one, criterion)), None)
        if copied is not None:
            weight = kept[copied].weight + criterion.weight
            kept[copied] = kept[copied].model_copy(update={"weight": weight})
            done.append(f"{criterion.key}: merged into {kept[copied].key}, whose weight is now {weight:g}")
            continue
        kept.append(criterion)
    criteria = tuple(_reworded(one, done) for one in kept)
    return (rubric.with_criteria(criteria), done) if done else (rubric, [])


def _reworded(criterion: Criterion, done: list[str]) -> Criterion:
    if criterion.check is not None or criterion.custom_prompt is not None:
        return criterion
    text = INVISIBLE.sub("", criterion.text)
    if text != criterion.text and text.strip():
        done.append(f"{criterion.key}: removed invisible characters")
    else:
        text = criterion.text
    plain = without_double_negation(text)
    if plain != text:
        done.append(f"{criterion.key}: removed a double negation")
    return criterion.model_copy(update={"text": plain}) if plain != criterion.text else criterion
