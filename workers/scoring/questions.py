"""The questions that a judge is asked under a rubric, each named by exactly what decides its verdict.

In a question's fingerprint: the criterion as the judge sees it, whatever shares its call, the judge, the text of the
template and the version of the mode; for a check its name, arguments and version. Not in it: weight, formula,
``required``, group, key and tags: changing one of these asks nothing again. (One exception: the first tag names the
curve of a calibrated readout, and so decides its value.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from rubricsvc.core.fingerprint import QuestionSet, digest
from rubricsvc.core.judge import Judge, Voting, family
from rubricsvc.core.prompt import Completion
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError
from workers import checks, judges
from workers.judges import custom_prompt
from workers.judges.template import load
from workers.scoring.parts import CLAIMS_VERSION

_VERSION = "3"
"""Raise it when the same votes of a panel or a cascade would make another verdict."""


@lru_cache(maxsize=4096)
def questions_of(rubric: Rubric, judge: Judge, group: str = "") -> QuestionSet:
    """Return the questions of a judge under a rubric; ``group`` is the digest of the group that is compared.

    Never raises: a judge whose template cannot be read has questions too, and its verdicts are failures.
    """
    names = _judged(rubric, judge, group)
    for criterion in rubric.criteria:
        if (check := criterion.check) is not None:
            known = checks.CHECKS.get(check.name)
            names[criterion.key] = digest("check", check.name, known and known.version, check.args)
    return QuestionSet({key: names[key] for key in rubric.by_key})


def group_questions(rubric: Rubric, judge: Judge, completions: Sequence[Completion]) -> QuestionSet:
    """Return the questions about completions that are given together, in any order."""
    return questions_of(rubric, judge, group_digest(completions) if judge.mode == "comparative" else "")


def group_digest(completions: Iterable[Completion]) -> str:
    """Return the digest of a group of completions, whatever its order."""
    return digest(sorted(completion.digest for completion in completions))


def _judged(rubric: Rubric, judge: Judge, group: str) -> dict[str, str]:
    """Return the fingerprints of the criteria without a check, by key."""
    if judge.members:
        rule: Any = judge.band if judge.mode == "cascade" else (judge.voting or Voting()).rule
        votes = [_judged(rubric, member, group) for member in judge.members]
        return {key: digest(judge.mode, _VERSION, rule, [by_key[key] for by_key in votes]) for key in votes[0]}
    try:
        template = load(judge).digest
    except InvalidError:
        template = ""
    curves = judge.calibration.families if judge.calibration else {}

    def curve(criterion: Criterion) -> str | None:
        """Return the family whose curve calibrates this criterion's probability, if any."""
        return name if (name := family(criterion)) in curves else None

    def seen(criterion: Criterion) -> list[Any]:
        return [criterion.text, criterion.scale, criterion.reference, criterion.passages, curve(criterion)]

    version = judges.MODES[judge.mode].VERSION
    how = [judge.digest, template, version, group]
    fingerprints = {}
    for criteria in judges.composition(judge, rubric):
        call = [seen(criterion) for criterion in criteria]
        for place, criterion in enumerate(criteria):
            fingerprints[criterion.key] = digest("judge", *how, call, place)
    for criterion in rubric.criteria:
        if (prompt := criterion.custom_prompt) is not None:
            shown = prompt.model_copy(update={"model": None})  # which model a grader names decides nothing
            about = [shown, criterion.scale, curve(criterion)]
            fingerprints[criterion.key] = digest("custom", judge.digest, version, *custom_prompt.identity(), *about)
        elif criterion.each:
            fingerprints[criterion.key] = digest("claims", CLAIMS_VERSION, *how, seen(criterion))
    return fingerprints
