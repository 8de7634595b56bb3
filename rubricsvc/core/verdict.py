"""Verdicts: scored, abstained or failed, on one criterion of one completion; labels, which are those of people.

A failure is never a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from rubricsvc.core.base import MAX_NAME_LENGTH, Name, UnitInterval, Value, storable
from rubricsvc.core.states import Outcome

if TYPE_CHECKING:
    from rubricsvc.core.rubric import Criterion


class Reason(StrEnum):
    """Why a verdict failed."""

    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    REFUSED = "refused"  # 4xx: the request, the key or the model name is wrong
    TRUNCATED = "truncated"  # the reply was cut off before its verdict
    UNPARSEABLE = "unparseable"
    WRONG_CRITERIA = "wrong_criteria"  # a criterion is missing, unknown or answered twice
    CONTRADICTORY = "contradictory"  # a reply has two different verdicts on a criterion
    TEMPLATE_COPIED = "template_copied"  # a reply repeats the words of the judge's template
    OUT_OF_RANGE = "out_of_range"  # NaN, infinite or off the scale
    NO_ANSWER = "no_answer"  # too little probability on the labels
    NO_LOGPROBS = "no_logprobs"
    DECLINED = "declined"  # the model or a content filter refused
    TOO_LONG = "too_long"
    NO_EVIDENCE = "no_evidence"  # a quote is not in the completion
    UNAVAILABLE = "unavailable"  # the circuit breaker is open
    BUDGET = "budget"  # the job's budget is spent
    NO_VARIABLE = "no_variable"  # a grader's template names a missing field
    NOT_JSON = "not_json"  # a grader reads JSON from a completion that is not JSON
    CHECK_ERROR = "check_error"
    NO_SANDBOX = "no_sandbox"  # no sandbox on that machine, so no code was run
    ENGINE_ERROR = "engine_error"  # the judge cannot be asked this, or its engine has an internal error


TRANSIENT = frozenset(
    {Reason.TIMEOUT, Reason.UNREACHABLE, Reason.RATE_LIMITED, Reason.SERVER_ERROR, Reason.UNAVAILABLE, Reason.BUDGET}
)
"""Reasons whose cause may have passed when the same question is asked again; after ``budget``, with a larger one."""

OF_REPLY = frozenset(
    {Reason.TRUNCATED, Reason.UNPARSEABLE, Reason.WRONG_CRITERIA, Reason.CONTRADICTORY}
    | {Reason.TEMPLATE_COPIED, Reason.OUT_OF_RANGE, Reason.DECLINED, Reason.NO_EVIDENCE}
)
"""Reasons of a reply that is no verdict; another sample may be one."""

StorableText = Annotated[str, AfterValidator(storable)]

RAW_CHARS = 4000  # characters kept of an error message or an unparseable reply


class Evidence(Value):
    """A quote; ``start`` and ``end`` are character offsets, None where the completion does not contain it."""

    quote: StorableText = Field(description="Quoted text.")
    start: int | None = Field(None, description="Offset of its first character; null if it does not occur.")
    end: int | None = Field(None, description="Offset after its last character.")


class Usage(Value):
    """Tokens of a call and their cost. Verdicts of one call carry shares of its usage, whose sums are the call's."""

    prompt: int = Field(0, description="Prompt tokens.")
    cached: int | None = Field(None, description="Prompt tokens read from the prefix cache; null if not counted.")
    completion: int = Field(0, description="Completion tokens.")
    cost: float = Field(0.0, description="Cost in US dollars, if a price is known.")

    def split(self, count: int) -> list[Usage]:
        """Return ``count`` shares that differ by one token at most; their sums are this usage."""
        if count == 1:  # nearly always, and validation costs as much as the rest of a readout
            return [self]
        prompt, completion, cached = (
            [total // count + (place < total % count) for place in range(count)]
            for total in (self.prompt, self.completion, self.cached or 0)
        )
        return [
            Usage(prompt=p, cached=None if self.cached is None else hit, completion=c, cost=self.cost / count)
            for p, hit, c in zip(prompt, cached, completion, strict=True)
        ]


def total_usage(usages: Iterable[Usage | None]) -> Usage | None:
    """Return the sum of the usages that are not None; None without any.

    Cached tokens are None if any of them are: their share of the sum of prompt tokens would be too low.
    """
    known = [usage for usage in usages if usage is not None]
    if not known:
        return None
    cached = [usage.cached for usage in known if usage.cached is not None]
    return Usage(
        prompt=sum(usage.prompt for usage in known),
        cached=sum(cached) if len(cached) == len(known) else None,
        completion=sum(usage.completion for usage in known),
        cost=sum(usage.cost for usage in known),
    )


class Vote(Value):
    """One of the votes that a verdict aggregates: of a sample, a panel member or one order of a pair.

    It may aggregate ``votes`` itself, as a panel's in a cascade does. A failed one has up to `RAW_CHARS` of ``detail``
    and ``raw``. Quotes and thinking are only stored for the vote nearest to the verdict, in the verdict.
    """

    by: str = Field(description="Voter: a member's name, sample 2, shown before 1a2b…, step 3, part 1.")
    outcome: Outcome = Field(description="Scored, abstained or failed.")
    value: UnitInterval | None = Field(None, description="Value of the vote, if it is scored.")
    probability: UnitInterval | None = Field(None, description="The model's own probability.")
    answer_mass: UnitInterval | None = Field(None, description="Total probability of a readout's labels.")
    rationale: StorableText | None = Field(None, description="The judge's reason.")
    reason: Reason | None = Field(None, description="Why the vote failed.")
    detail: StorableText | None = Field(None, description="Message of the failure.")
    raw: StorableText | None = Field(None, description="Reply that could not be read.")
    usage: Usage | None = Field(None, description="Tokens and cost.")
    votes: tuple[Vote, ...] = Field((), description="Votes that this one aggregates.")


class Verdict(Value):
    """A verdict on one criterion. Use ``scored``, ``abstained`` or ``failed`` to create one."""

    criterion: str = Field(description="Key of the criterion.")
    outcome: Outcome = Field(description="Scored, abstained or failed.")
    value: UnitInterval | None = Field(None, description="Value on the scale, after any threshold; null unless scored.")
    probability: UnitInterval | None = Field(None, description="The model's own probability.")
    calibrated: UnitInterval | None = Field(None, description="Probability after calibration.")
    answer_mass: UnitInterval | None = Field(None, description="Total probability of a readout's labels.")
    levels: dict[str, UnitInterval] | None = Field(None, description="Distribution over three or more labels.")
    rationale: StorableText | None = Field(None, description="The judge's reason.")
    thinking: StorableText | None = Field(None, description="Text of a reasoning judge before its reply; never parsed.")
    evidence: tuple[Evidence, ...] = Field((), description="Quotes from the completion.")
    reason: Reason | None = Field(None, description="Why the verdict failed.")
    detail: StorableText | None = Field(None, description="Message of the failure.")
    raw: StorableText | None = Field(None, description="Reply that could not be read.")
    usage: Usage | None = Field(None, description="Tokens and cost.")
    latency_s: float | None = Field(None, description="Seconds until the reply.")
    votes: tuple[Vote, ...] = Field((), description="Votes that the verdict aggregates.")
    spread: float | None = Field(None, ge=0.0, description="Standard deviation of the votes' values.")
    sample: int = Field(0, ge=0, description="Number of the repeat of the same question.")
    fingerprint: str | None = Field(None, description="SHA-256 of the question; null before the verdict is stored.")

    @model_validator(mode="after")
    def _whole(self) -> Verdict:
        this = f"and only there; this one is {self.outcome}"
        if (self.value is not None) != (self.outcome == "scored"):
            raise ValueError(f"a value in [0, 1] is required for a scored verdict, {this}")
        if (self.reason is not None) != (self.outcome == "failed"):
            raise ValueError(f"a reason is required for a failed verdict, {this}")
        return self

    @property
    def best_probability(self) -> float | None:
        """The calibrated probability, or the judge's own without a calibration."""
        return self.probability if self.calibrated is None else self.calibrated

    @classmethod
    def scored(cls, criterion: str, value: float, **fields: object) -> Verdict:
        """Return a verdict with a value in [0, 1]."""
        return cls.model_validate({"criterion": criterion, "outcome": "scored", "value": value, **fields})

    @classmethod
    def abstained(cls, criterion: str, **fields: object) -> Verdict:
        """Return the verdict of a judge that cannot tell."""
        return cls.model_validate({"criterion": criterion, "outcome": "abstained", **fields})

    @classmethod
    def failed(cls, criterion: str, reason: Reason | str, **fields: object) -> Verdict:
        """Return a verdict that failed."""
        return cls.model_validate({"criterion": criterion, "outcome": "failed", "reason": reason, **fields})


OVERALL = "overall"
"""The key of a score of the whole completion. If a rubric has such a criterion, the judge is asked for it too."""

Annotator = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME_LENGTH)]


class Label(Value):
    """A person's verdict. ``value`` is in [0, 1] on the criterion's scale; None if the person could not decide."""

    criterion: Name = Field(min_length=1, description="Key of the criterion, or overall: the completion as a whole.")
    annotator: Annotator = Field(description="Name of the person.")
    value: UnitInterval | None = Field(None, description="Value on the scale; null if the person could not tell.")
    note: StorableText | None = Field(None, max_length=20_000, description="Why, in the person's words.")


class JudgedLabel(NamedTuple):
    """A label beside one judge's verdicts on the same completion under the same rubric.

    ``verdicts`` has the judge's newest verdicts by criterion, and is empty if it was not asked; ``reward`` was computed
    from them. ``criterion`` is None for an ``overall`` score under a rubric without such a criterion.
    """

    completion_id: int
    prompt_id: int
    rubric_id: int
    label: Label
    criterion: Criterion | None
    verdicts: Mapping[str, Verdict]
    reward: float | None = None
    completion_external_id: str | None = None

    @property
    def question(self) -> str:
        """What the person was asked: the criterion's question, or the key of a score of the whole completion."""
        return self.criterion.question if self.criterion is not None else self.label.criterion

    @property
    def verdict(self) -> Verdict | None:
        """The judge's verdict on the criterion of the label."""
        return self.verdicts.get(self.label.criterion)
