"""Checks of plain text: terms, patterns, lengths and repetition."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.trajectory import distinct_share, repetitions, steps_of
from workers.checks.registry import Args, CheckResult
from workers.checks.sandbox.child_process import Child


class Contains(Args):
    """``mode``: any (at least one term), all, none, or share (of the terms, as the value).

    ``where``: anywhere, or at the start or the end (ignoring white space). ``whole``: match whole words, so that ``is``
    is not in ``this``. ``case``: match case.
    """

    terms: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    mode: Literal["any", "all", "none", "share"] = "any"
    where: Literal["anywhere", "start", "end"] = "anywhere"
    whole: bool = False
    case: bool = False


def contains(completion: Completion, prompt: Prompt, args: Contains) -> float:
    """Return 1 or 0; with ``mode="share"`` the share of terms found."""
    before, after = (r"(?<!\w)", r"(?!\w)") if args.whole else ("", "")
    first, last = (r"\A" if args.where == "start" else ""), (r"\Z" if args.where == "end" else "")
    patterns = [f"{first}{before}{re.escape(term)}{after}{last}" for term in args.terms]
    flags, text = re.NOFLAG if args.case else re.IGNORECASE, completion.text.strip()
    count = sum(re.search(pattern, text, flags) is not None for pattern in patterns)
    if args.mode == "share":
        return count / len(args.terms)
    return float({"any": count > 0, "all": count == len(args.terms), "none": count == 0}[args.mode])


_matcher = Child(
    "pattern",
    """
import re
from itertools import islice
def answer(pattern, text, limit):
    return sum(1 for _ in islice(re.finditer(pattern, text), limit))
""",
    "-S",
)


class Regex(Args):
    """``count``: the minimum number of matches. ``absent``: there must be no match. ``(?i)`` ignores case."""

    pattern: str = Field(min_length=1, max_length=1000)
    count: int = Field(default=1, ge=1)
    absent: bool = False
    timeout_s: float = Field(default=1.0, gt=0.0, le=60.0)

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return pattern


def regex(completion: Completion, prompt: Prompt, args: Regex) -> float:
    """Return 1 or 0. A pattern that takes longer than ``timeout_s`` fails with ``check_error``."""
    limit = 1 if args.absent else args.count
    count = _matcher.ask(args.pattern, completion.text, limit, timeout_s=args.timeout_s)
    return float((count >= limit) != args.absent)


class Span(Args):
    """The range of a count. Outside, ``partial`` gives linear credit: n/min below, 1 - (n - max)/max above."""

    min: int = Field(default=0, ge=0)
    max: int | None = Field(default=None, ge=1)
    partial: bool = True

    @model_validator(mode="after")
    def _ordered(self) -> Span:
        if self.max is None and not self.min:
            raise ValueError("give min, max or both")
        if self.max is not None and self.min > self.max:
            raise ValueError(f"min ({self.min}) must not be above max ({self.max})")
        return self

    def credit(self, count: int) -> float:
        """Return 1 within the range, else the partial credit."""
        if count < self.min:
            value = count / self.min
        else:
            value = 1.0 if self.max is None else min(1.0, max(0.0, 1.0 - (count - self.max) / self.max))
        return value if self.partial else float(value == 1.0)


_SENTENCE_END = re.compile(r"[.!?…](?:[\"'”’)\]]*)(?=\s|\Z)|[。！？]|\n\s*\n|\Z")
"""Sentences end at ``.!?`` before white space and at blank lines."""

COUNTS: dict[str, Callable[[str], int]] = {
    "words": lambda text: len(text.split()),
    "sentences": lambda text: sum(any(map(str.isalnum, piece)) for piece in _SENTENCE_END.split(text)),
    "paragraphs": lambda text: sum(bool(part.strip()) for part in re.split(r"\n[ \t]*(?=\n)", text)),
    "characters": lambda text: len(text.strip()),
}
"""Lengths, by the names of their checks."""


def length(completion: Completion, prompt: Prompt, args: Span, *, count: Callable[[str], int]) -> float:
    """Return the credit for a length."""
    return args.credit(count(completion.text))


class Distinct(Args):
    """``n``: words in an n-gram."""

    n: int = Field(default=3, ge=1, le=20)


def distinct(completion: Completion, prompt: Prompt, args: Distinct) -> float:
    """Return `distinct_share`, ignoring case. A short text repeats nothing; use ``words`` for its length."""
    return distinct_share(completion.text.casefold().split(), args.n)


class Loops(Args):
    """``calls``: a tool call that was made before with the same arguments counts as a repetition too."""

    calls: bool = False


def loops(completion: Completion, prompt: Prompt, args: Loops) -> CheckResult:
    """Return 1 less the share of steps in loops; with ``calls``, of repeated calls where that is more."""
    found = repetitions(steps_of(completion))
    share = found.share
    if args.calls and found.calls:
        share = max(share, 1 - len(set(found.calls)) / len(found.calls))
    return CheckResult(1 - share, found.text[:1000] or "nothing repeats")
