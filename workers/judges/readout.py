"""Readout: one question per criterion, answered by one token; the value is read from the labels' probabilities.

The labels are ``Yes``/``No`` for a binary criterion, letters for the levels of an ordinal one (labels may share their
first token, letters do not), digits for a numeric one whose scale runs over whole numbers from 0 to 9, else letters for
eleven evenly spaced points of the scale (digits would not do: ``10`` begins with the token of 1). There is no letter I,
with which many a reply that is no answer begins, and only capitals count, for "a" is a word too. The value is the
expected worth, Σ p·v / Σ p over the labels; for a binary criterion that is P(yes) / (P(yes) + P(no)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import ascii_uppercase

from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Binary, Ordinal, Scale
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.errors import InvalidError
from workers.engines.base import Question, Reply
from workers.judges.requests import Asked, Call, joined, put
from workers.judges.template import Shown, Template

VERSION = "2"
"""Part of the verdicts' fingerprint. Raise it when the same rubric would be put in other words, or the same reply read
in another way: by a change of ``options``, of the cleaning in ``untrusted``, of ``read``, or of ``normalize_token``."""

LETTERS = ascii_uppercase.replace("I", "")
_POINTS = 11
_CERTAIN = 1.001  # sums of rounded probabilities may pass 1 by a little

Option = tuple[str, float, str]
"""A label, its worth in [0, 1], and what the judge is told about it."""


def options(scale: Scale) -> list[Option]:
    """The labels to choose from.

    Raises:
        InvalidError: more levels than letters.
    """
    if isinstance(scale, Binary):
        return [("Yes", 1.0, ""), ("No", 0.0, "")]
    if isinstance(scale, Ordinal):
        if len(scale.levels) > len(LETTERS):
            raise InvalidError(f"{len(scale.levels)} levels are more than a readout can letter", hint="mode: written")
        told = [f"{level.label}: {level.text}" if level.text else level.label for level in scale.levels]
        return [(a, level.value, text) for a, level, text in zip(LETTERS, scale.levels, told, strict=False)]
    low, high = scale.low, scale.high
    if low.is_integer() and high.is_integer() and low >= 0 and high <= 9:
        return [(str(n), (n - low) / (high - low), f"{n} of {high:g}") for n in range(int(low), int(high) + 1)]
    steps = [step / (_POINTS - 1) for step in range(_POINTS)]
    return [(a, step, f"{low * (1 - step) + high * step:g}") for a, step in zip(LETTERS, steps, strict=False)]


def names(scale: Scale, values: Sequence[float]) -> tuple[str, ...]:
    """What the rubric calls the labels of these worths; a binary one's probability says all, and they need no names."""
    if isinstance(scale, Binary):
        return ()
    if isinstance(scale, Ordinal):
        return tuple(level.label for level in scale.levels)
    return tuple(f"{scale.low * (1 - value) + scale.high * value:g}" for value in values)


def calls(asked: list[Asked], judge: Judge, template: Template) -> list[Call]:
    """One call a criterion."""
    return [_call(one, template) for one in asked]


def _call(one: Asked, template: Template) -> Call:
    choices = options(one.criterion.scale)
    labels, values, told = zip(*choices, strict=True)
    criterion = put(one, template, "\n".join(f"{label}: {text}" for label, text in zip(labels, told, strict=True)))
    tail = template.fill("criterion", {"criteria": criterion.text, "ids": one.id})
    return Call((one,), Question(tail, labels), values, criterion.note, names(one.criterion.scale, values))


def repair(call: Call, reply: Reply, judge: Judge, template: Template) -> Question | None:
    """None: to ask again for a token would bring the same one."""
    return None


def read(call: Call, reply: Reply, judge: Judge, shown: Shown) -> list[Verdict]:
    """The verdict in the labels' probabilities; ``Verdict.probability`` is from before calibration and threshold."""
    mass = reply.label_mass
    if mass is None:
        return call.failed(Reason.NO_LOGPROBS, "the engine gave no probabilities", reply, shown)
    shares = [mass.get(label, 0.0) for label in call.question.labels]
    if not all(0.0 <= share <= _CERTAIN for share in shares):
        return call.failed(Reason.OUT_OF_RANGE, f"probabilities {mass}", reply, shown)
    total = math.fsum(shares)
    if total > _CERTAIN:
        return call.failed(Reason.OUT_OF_RANGE, f"the labels share {total:.3g} of the probability", reply, shown)
    if total < judge.min_answer_mass or total == 0:
        why = f"the labels share {total:.3g} of the probability, under {judge.min_answer_mass:g}"
        return call.failed(Reason.NO_ANSWER, why, reply, shown, answer_mass=min(total, 1.0))
    expected = min(math.fsum(p * v for p, v in zip(shares, call.values, strict=True)) / total, 1.0)
    one = call.asked[0]
    calibrated = judge.calibration.value(one.criterion, expected) if judge.calibration else None
    chance = expected if calibrated is None else calibrated
    value = chance if judge.threshold is None else float(chance >= judge.threshold)
    return [
        Verdict.scored(
            one.criterion.key,
            value,
            probability=expected,
            calibrated=calibrated,
            answer_mass=min(total, 1.0),
            levels=_shared(call.levels, shares, total),
            detail=joined(shown.note, call.note),
            **call.spent(reply),
        )
    ]


def _shared(levels: Sequence[str], shares: Sequence[float], total: float) -> dict[str, float] | None:
    if len(levels) <= 2:
        return None
    return {level: min(share / total, 1.0) for level, share in zip(levels, shares, strict=True)}
