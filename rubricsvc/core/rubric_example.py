"""Examples of a rubric: short completions, with the verdicts or the reward that they must get."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from rubricsvc.core.base import Name, Text, Value
from rubricsvc.core.prompt import Prompt

MAX_EXAMPLES = 1000
MAX_TEXT = 100_000
"""Characters of an example."""

ROUNDING = 1e-9


class NumberRange(Value):
    """Numbers from ``min`` to ``max``, of which one may be missing. One number, or ``[min, max]``, is accepted too."""

    min: float | None = Field(None, description="Least number.")
    max: float | None = Field(None, description="Greatest number.")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        match given:
            case int() | float():
                return {"min": float(given), "max": float(given)}
            case [low, high]:
                return {"min": low, "max": high}
        return given

    @model_validator(mode="after")
    def _possible(self) -> NumberRange:
        if self.min is None and self.max is None:
            raise ValueError("expected a number, or min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min ({self.min:g}) must not be above max ({self.max:g})")
        return self

    def __contains__(self, value: float) -> bool:
        low, high = self.min, self.max
        return (low is None or value >= low - ROUNDING) and (high is None or value <= high + ROUNDING)

    def __str__(self) -> str:
        if self.number is not None:
            return f"{self.number:g}"
        if self.min is None or self.max is None:
            return f"at most {self.max:g}" if self.min is None else f"at least {self.min:g}"
        return f"{self.min:g} to {self.max:g}"

    @property
    def number(self) -> float | None:
        """The number that it is, if it is only one."""
        return self.min if self.min == self.max else None


class RubricExample(Value):
    """A completion with what it must get: verdicts by criterion, or a reward, or both."""

    key: Name = Field(min_length=1, description="Name of the example, unique in its rubric.")
    text: Text = Field(max_length=MAX_TEXT, description="Text of the completion.")
    prompt: Prompt | None = Field(
        None, description="Prompt that it answers; by default that of the rubric, which a rubric for any lacks."
    )
    verdicts: dict[str, NumberRange] | None = Field(
        None, description="Value from 0 to 1 that each criterion must get; its nearest level, if the scale has levels."
    )
    reward: NumberRange | None = Field(None, description="Reward that it must get.")
    evidence: dict[str, tuple[Text, ...]] | None = Field(
        None, description="Words of the text by which it meets a criterion, letter by letter."
    )

    @model_validator(mode="after")
    def _consistent(self) -> RubricExample:
        if not self.verdicts and self.reward is None:
            raise ValueError("expected verdicts or a reward, found neither")
        for key, quotes in (self.evidence or {}).items():
            for quote in quotes:
                if not quote.strip() or quote not in self.text:
                    raise ValueError(f"evidence of {key!r}: {quote[:80]!r} is not in the text")
        return self
