"""Criteria whose wording and weight pull in opposite directions, or whose negations confuse."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rubricsvc.core.rubric import Criterion
from rubricsvc.lint.registry import LintHit, Subject, rule
from rubricsvc.lint.text import MOST_READ, demands, requirement

_SUBJECT = (
    r"^\W*(?:(?:the|this|a|an) )?(?:(?:model |assistant'?s? )?(?:response|answer|completion|report|text|essay"
    r"|output|assistant|model|summary)s? )?(?:should |must |does )?(?:be |is |are )?"
)
_FAULT = re.compile(
    _SUBJECT + r"(?:fail(?:s|ed|ing)? to\b|omits?\b|neglects?\b|overlooks?\b|lacks?\b|ignores?\b|misses\b|forgets?\b"
    r"|incorrect(?:ly)?\b|"
    r"wrong(?:ly)?\b|inaccurate(?:ly)?\b|falsely\b|inappropriate(?:ly)?\b|unnecessarily\b|erroneous(?:ly)?\b|"
    r"misleading(?:ly)?\b|mis(?:states|represents|interprets|leads|identifies|diagnoses|attributes|quotes)\b|"
    r"overstates\b|exaggerates\b|overcomplicates\b|fabricates\b|hallucinates\b|invents\b|contradicts\b|"
    r"(?:overly|excessively|too|unnecessarily|needlessly) \w+)"
    r"|\b(?:contains?|includes?|provides?|gives?|makes?|has|uses?|offers?|presents?|states?|adds?|generates?) "
    r"(?:(?:an?|some|any|the|several|many) )?(?:\w+ly )?(?:incorrect|inaccurate|wrong|false|fabricated|hallucinated|"
    r"misleading|harmful|dangerous|unsafe|irrelevant|redundant|repetitive|too (?:many|much|long)|unnecessary"
    r"|unneeded|excessive|"
    r"overcomplicated|outdated|unsupported|unnecessarily|verbose|long, redundant)\b"
    r"|\bis (?:too|overly|somewhat|excessively) (?:long|short|lengthy|verbose|vague|general|repetitive|technical"
    r"|complex)"
    r"|\bin an? (?:overly |too )?(?:verbose|confusing|misleading|alarming|condescending|rude) (?:manner|way|tone)"
    r"|\b(?:that|which) (?:is|are) too (?:long|short|verbose|vague|technical)",
    re.I,
)
_VIRTUE = re.compile(
    _SUBJECT + r"(?:correct(?:ly)?\b|accurate(?:ly)?\b|appropriate(?:ly)?\b|clear(?:ly)?\b|properly\b|rightly\b"
    r"|concise(?:ly)?\b|brief and concise|"
    r"succinct(?:ly)?\b|hedges appropriately\b|keeps the \w+ (?:brief|short|concise|clear)\b|avoids?\b"
    r"|refrains? from\b|free of\b|helpful(?:ly)?\b|thorough(?:ly)?\b|effectively\b)"
    r"|^\W*(?:the (?:response|answer) )?(?:provides?|gives?|offers?|contains?|includes?|has|uses?|keeps?|hedges"
    r"|organi[sz]es) "
    r"(?:(?:an?|the|its|\w+) )?(?:\w+ly )?(?:\w+ and )?(?:correct|accurate|appropriate(?:ly)?|clear|concise|brief"
    r"|succinct|helpful|"
    r"reliable|no (?:\w+ly )?(?:incorrect|inaccurate|false|factual))\b",
    re.I,
)
_NEGATED = re.compile(
    r"\b(?:without|fails?|failing|lacks?|does not|do not|instead of|rather than|wrong\w*|incorrect\w*|inaccura\w+|"
    r"but|too|overly|excessive\w*|unnecessar\w+|inappropriate\w*|harm\w*|despite|although|even though)\b",
    re.I,
)
_MIRROR = re.compile(r"^\W*(?:correctly|accurately|appropriately|clearly|properly|avoids?|refrains?)\b", re.I)
_FAULT_NEXT = re.compile(r"\s*(?:mis\w+|fails?|omits?|ignores?|wrong\w*|incorrect\w*|inaccurate\w*|does not)\b", re.I)
_ABSENCE = re.compile(
    _SUBJECT
    + r"(?:avoids?\b|avoiding\b|refrains? from\b|abstains? from\b|free (?:of|from)\b|(?:does|do|did|should|must"
    r"|is|are|has|have|contains?|"
    r"includes?|makes?|uses?|gives?)? ?(?:not|no|never)\b|contains? no\b|has no\b|doesn't\b|strictly confined\b"
    r"|without\b)",
    re.I,
)
_ALSO_POSITIVE = re.compile(
    r"\b(?:and|but|while|;|instead)\b[^.]{0,20}\b(?:also |instead )?(?:advis|explain|recommend|mention|provid"
    r"|suggest|refer|includ|"
    r"stat|focus|offer|redirect|use|giv)\w*|\bnot only\b|\b(?:not|never) (?:fail|omit|miss|neglect|lack|forget|un\w+)",
    re.I,
)
_PROTOCOL = re.compile(r"\bif (?:yes|no|not|present|absent)\b,? (?:then )?(?:it )?(?:fail|pass)", re.I)
_DOUBLE = re.compile(
    r"(?<!\bif )\b(not|never|without|n't)\s+(?:\w+ly )?(?:to )?(fail(?:s|ed|ing)?(?: to)?|omit(?:s|ting)?|neglect(?:s"
    r"|ing)?(?: to)?|miss(?:es|ing)?|"
    r"lack(?:s|ing)?|forget(?:s|ting)?(?: to)?|ignor(?:e|ing)|overlook(?:ing)?|leav(?:e|ing) out|leav(?:e|ing) \w+ out|"
    r"avoid(?:ing)?|refrain(?:ing)?(?: from)?|exclud(?:e|ing)|un(?:clear|true|helpful|safe|supported|related"
    r"|available|common)|"
    r"without|in(?:correct|accurate|complete|appropriate|consistent)|im(?:possible|plausible))\b",
    re.I,
)
_MODAL_FAIL = re.compile(
    r"\b(should|must|shall|may|can|will|would|does|do|did) (?:not|never) (?:fail|neglect|forget|omit) to\b", re.I
)


@rule(
    "sign",
    "error",
    why="A positive weight on a fault pays for the fault; a negative one on a virtue punishes it. A policy learns"
    " exactly that.",
    fix="Change the sign of the weight, or turn the wording around.",
    bad="Fails to mention the dose. (weight 5)",
    good="Fails to mention the dose. (weight -5)  or  Mentions the dose. (weight 5)",
)
def sign(subject: Subject) -> Iterator[LintHit]:
    """Find a positive weight on a fault, and a negative one on a virtue."""
    for criterion in subject.judged:
        if _PROTOCOL.search(criterion.text[:MOST_READ]):
            continue  # "if yes, fail" turns the verdict around
        text = next(iter(demands(requirement(criterion.text))), "")
        if criterion.weight > 0 and (found := _FAULT.search(text)):
            yield LintHit(criterion, f"“{_short(found[0])}” is a fault, and the weight is {criterion.weight:g}")
        elif criterion.weight < 0 and (found := _VIRTUE.search(text)) and not _is_fault(text, found.end()):
            yield LintHit(criterion, f"“{_short(found[0])}” is a virtue, and the weight is {criterion.weight:g}")


def _is_fault(text: str, end: int) -> bool:
    """Return whether a text that begins with a virtue goes on to a fault."""
    if _MIRROR.match(text):
        return bool(_FAULT_NEXT.match(text, end))
    return bool(_FAULT.search(text) or _NEGATED.search(text, end))


@rule(
    "absence",
    "info",
    why="An empty completion leaves everything out. A positive weight on an absence is paid to completions that say"
    " nothing, and"
    " raises the reward of all the others alike.",
    fix="Make it a pitfall: name the fault, with a negative weight.",
    bad="Does not recommend antibiotics. (weight 5)",
    good="Recommends antibiotics. (weight -5)",
)
def absence(subject: Subject) -> Iterator[LintHit]:
    """Find positive weights that are earned by leaving something out."""
    for criterion in subject.judged:
        if criterion.weight > 0 and (found := _only_absence(criterion)):
            yield LintHit(criterion, f"an empty text meets “{_short(found)}…”")


def _only_absence(criterion: Criterion) -> str:
    text = requirement(criterion.text)
    found = _ABSENCE.match(text)
    return found[0] if found and not _ALSO_POSITIVE.search(text) else ""


@rule(
    "double-negation",
    "warning",
    why="Two negations that cancel each other are read wrongly, by people and by models.",
    fix="Say what the completion must do.",
    bad="The answer should not fail to name the dose.",
    good="The answer should name the dose.",
)
def double_negation(subject: Subject) -> Iterator[LintHit]:
    """Find two negations that cancel each other."""
    for criterion in subject.judged:
        if found := _DOUBLE.search(requirement(criterion.text)):
            yield LintHit(criterion, f"“{_short(found[0])}” negates twice")


def _short(text: str) -> str:
    return " ".join(text.split()).strip(" .,:;")[:60]
