"""Readout: one question for each criterion, answered by one token; the value is read from the labels' probabilities.

The labels are ``Yes`` and ``No`` for a binary criterion and letters for the levels of an ordinal one (level names may
share their first token, letters do not). A numeric criterion has digits where its scale runs over whole numbers from 0
to 9, else letters for eleven evenly spaced points (``10`` begins with the token of 1). The letter I is left out, since
many replies that are no answer begin with it; only capitals count, since "a" is a word. The value is the expected
value, Σ p·v / Σ p over the labels; for a binary criterion that is P(yes) / (P(yes) + P(no)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import ascii_uppercase

from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Binary, Ordinal, Scale
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.errors import InvalidError
from workers.engines.base import Question
from workers.judges.calls import AskedCriterion, JudgeCall, JudgeTemplate, ParsedReply, SharedPrompt, render_criterion

VERSION = "4"
"""As in the other modes: raise it on changes of ``options``, cleaning in ``untrusted``, ``verdicts``, and tokens."""

LETTERS = ascii_uppercase.replace("I", "")
_POINTS = 11
_MAX_MASS = 1.001  # sums of rounded probabilities may exceed 1 slightly

Option = tuple[str, float, str, str]
"""A label, its value in [0, 1], the level's name in the rubric, and its description for the judge."""


def options(scale: Scale) -> list[Option]:
    """Return the labels of a scale."""
    if isinstance(scale, Binary):
        return [("Yes", 1.0, "", ""), ("No", 0.0, "", "")]
    if isinstance(scale, Ordinal):
        return [
            (letter, level.value, level.label, f"{level.label}: {level.text}" if level.text else level.label)
            for letter, level in zip(letters(len(scale.levels)), scale.levels, strict=True)
        ]
    low, high = scale.low, scale.high
    if low.is_integer() and high.is_integer() and low >= 0 and high <= 9:
        return [(str(n), (n - low) / (high - low), str(n), f"{n} of {high:g}") for n in range(int(low), int(high) + 1)]
    steps = [step / (_POINTS - 1) for step in range(_POINTS)]
    points = [f"{low * (1 - step) + high * step:g}" for step in steps]
    return list(zip(letters(_POINTS), steps, points, points, strict=True))


def letters(count: int) -> str:
    """Return the letters of ``count`` labels."""
    if count > len(LETTERS):
        raise InvalidError(f"a readout has at most {len(LETTERS)} labels, found {count}", hint="use mode: written")
    return LETTERS[:count]


def build_call(asked: Sequence[AskedCriterion], template: JudgeTemplate) -> JudgeCall:
    """Return the call about one criterion."""
    (one,) = asked
    labels, values, levels, texts = zip(*options(one.criterion.scale), strict=True)
    lines = "\n".join(f"{label}: {text}" for label, text in zip(labels, texts, strict=True))
    criterion = render_criterion(one, template, lines)
    text = template.fill("criterion", {"criteria": criterion.text, "ids": one.id})
    return JudgeCall((one,), Question(text, labels), values, criterion.note, levels)


def verdicts(call: JudgeCall, parsed: ParsedReply, judge: Judge, shown: SharedPrompt) -> list[Verdict]:
    """Return the verdict from the labels' probabilities; ``probability`` is that before calibration and threshold."""
    reply = parsed.reply
    if reply.label_mass is None:
        return call.failed(Reason.NO_LOGPROBS, "the engine returned no probabilities", reply, shown)
    masses = [reply.label_mass.get(label, 0.0) for label in call.question.labels]
    if not all(0.0 <= mass <= _MAX_MASS for mass in masses):
        return call.failed(Reason.OUT_OF_RANGE, f"invalid probabilities {reply.label_mass}", reply, shown)
    total = math.fsum(masses)
    if total > _MAX_MASS:
        return call.failed(Reason.OUT_OF_RANGE, f"the labels' probabilities sum to {total:.3g}", reply, shown)
    if total < judge.min_answer_mass or total == 0:
        detail = f"the labels' probabilities sum to {total:.3g}, below min_answer_mass {judge.min_answer_mass:g}"
        return call.failed(Reason.NO_ANSWER, detail, reply, shown, answer_mass=min(total, 1.0))
    expected = min(math.fsum(p * v for p, v in zip(masses, call.values, strict=True)) / total, 1.0)
    criterion = call.asked[0].criterion
    calibrated = judge.calibration.value(criterion, expected) if judge.calibration else None
    probability = expected if calibrated is None else calibrated
    levels = None
    if len(call.levels) > 2:
        levels = {level: min(mass / total, 1.0) for level, mass in zip(call.levels, masses, strict=True)}
    return [
        Verdict.scored(
            criterion.key,
            probability if judge.threshold is None else float(probability >= judge.threshold),
            probability=expected,
            calibrated=calibrated,
            answer_mass=min(total, 1.0),
            levels=levels,
            **call.common_fields(reply, shown),
        )
    ]
