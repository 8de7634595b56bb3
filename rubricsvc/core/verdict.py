"""A judge's finding on one criterion of one completion: scored, abstained or failed. A failure is never a number."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from rubricsvc.core.base import UnitInterval, Value

Outcome = Literal["scored", "abstained", "failed"]


class Reason(StrEnum):
    """Why there is no finding."""

    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    REFUSED = "refused"  # the server answered 4xx: our request, key or model name is wrong
    TRUNCATED = "truncated"  # the reply was cut off before its verdict
    UNPARSEABLE = "unparseable"
    WRONG_CRITERIA = "wrong_criteria"  # a criterion is missing, foreign or answered twice
    OUT_OF_RANGE = "out_of_range"  # NaN, infinite or off the scale
    NO_ANSWER = "no_answer"  # too little probability on the labels
    NO_LOGPROBS = "no_logprobs"
    DECLINED = "declined"  # the model would not say, or a filter would not let it
    TOO_LONG = "too_long"
    NO_EVIDENCE = "no_evidence"  # a quote that the judge gives is not in the completion
    UNAVAILABLE = "unavailable"  # the server failed so often that it is not asked for a while
    BUDGET = "budget"  # to go on would have passed the job's cap
    NO_VARIABLE = "no_variable"  # a grader names what the item or the sample has not
    NOT_JSON = "not_json"  # a grader reads JSON out of an answer that is none
    CHECK_ERROR = "check_error"
    NO_SANDBOX = "no_sandbox"  # there is none on that machine, and so no code was run
    ENGINE_ERROR = "engine_error"  # a fault inside the engine itself


def _storable(text: str) -> str:
    """A model may write half of a surrogate pair, or U+0000, which no file and not every database takes."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


Text = Annotated[str, AfterValidator(_storable)]


RAW_CHARS = 4000
"""How much of a foreign text is kept: an error's message, a reply that cannot be read."""


class Evidence(Value):
    """A passage that the judge quotes; ``start``/``end`` are character offsets, absent where it is not in the text."""

    quote: Text
    start: int | None = None
    end: int | None = None


class Usage(Value):
    """Tokens of the call, and its ``cost`` in US dollars where a price is known.

    Where one call gave several verdicts, each carries its share.
    """

    prompt: float = 0.0
    cached: float = 0.0
    completion: float = 0.0
    cost: float = 0.0

    def share(self, of: int) -> Usage:
        """One of so many equal shares."""
        return Usage(**{name: getattr(self, name) / of for name in Usage.model_fields})


class Vote(Value):
    """One of several findings that a verdict was made of: a sample, a panel's member, one order of a pair.

    ``by`` says whose or which: ``"strong"``, ``"sample 2"``, ``"second shown first"``; ``usage`` what it cost. A vote
    that was itself made of several, a panel's in a cascade or a voted sample's, has those as ``votes``. One that failed
    has ``detail`` and ``raw``, up to `RAW_CHARS` of each. Quotes and thinking are kept of the vote nearest to the
    verdict, in the verdict: those of all would make a verdict's row many times as large.
    """

    by: str
    outcome: Outcome
    value: UnitInterval | None = None
    probability: UnitInterval | None = None
    answer_mass: UnitInterval | None = None
    rationale: Text | None = None
    reason: Reason | None = None
    detail: Text | None = None
    raw: Text | None = None
    usage: Usage | None = None
    votes: tuple[Vote, ...] = ()


class Verdict(Value):
    """One finding. Make it with ``scored``, ``abstained`` or ``failed``.

    ``probability`` is what the judge itself gave; ``value`` comes of it by the judge's calibration and threshold, and
    ``calibrated`` stands between the two, where there is a calibration.
    ``answer_mass`` is the probability that a readout's labels shared, of several readouts the mean, too little of it
    included; the rest lay outside them. ``levels`` is how they shared it, by level, where there are more than two: it
    sums to 1. ``thinking`` is what a reasoning judge wrote before its reply: kept, and never read as a verdict.
    ``votes`` are the findings that this one was made of, ``spread`` the standard deviation of their values.
    """

    criterion: str
    outcome: Outcome
    value: UnitInterval | None = None
    probability: UnitInterval | None = None
    calibrated: UnitInterval | None = None
    answer_mass: UnitInterval | None = None
    levels: dict[str, UnitInterval] | None = None
    rationale: Text | None = None
    thinking: Text | None = None
    evidence: tuple[Evidence, ...] = ()
    reason: Reason | None = None
    detail: Text | None = None
    raw: Text | None = None
    usage: Usage | None = None
    latency_s: float | None = None
    votes: tuple[Vote, ...] = ()
    spread: float | None = Field(default=None, ge=0.0)
    sample: int = Field(default=0, ge=0)
    fingerprint: str | None = None

    @model_validator(mode="after")
    def _whole(self) -> Verdict:
        if (self.value is not None) != (self.outcome == "scored"):
            raise ValueError("a scored verdict has a value in [0, 1], and no other verdict has one")
        if (self.reason is not None) != (self.outcome == "failed"):
            raise ValueError("a failed verdict has a reason, and no other verdict has one")
        return self

    @property
    def chance(self) -> float | None:
        """The probability, calibrated where it can be; None where the judge gave none."""
        return self.probability if self.calibrated is None else self.calibrated

    @classmethod
    def scored(cls, criterion: str, value: float, **fields: object) -> Verdict:
        return cls.model_validate({"criterion": criterion, "outcome": "scored", "value": value, **fields})

    @classmethod
    def abstained(cls, criterion: str, **fields: object) -> Verdict:
        """The judge says that it cannot tell."""
        return cls.model_validate({"criterion": criterion, "outcome": "abstained", **fields})

    @classmethod
    def failed(cls, criterion: str, reason: Reason | str, **fields: object) -> Verdict:
        return cls.model_validate({"criterion": criterion, "outcome": "failed", "reason": reason, **fields})
