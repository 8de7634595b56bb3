"""Rubrics, criteria, scales, and examples with the verdicts or the reward that they must get."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cached_property
from itertools import chain
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, JsonValue, model_validator

from rubricsvc.core.base import Content, Name, Text, UnitInterval, Value
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.templates import TemplateText, check_expression
from rubricsvc.errors import cut

MAX_EXAMPLES = 1000
MAX_TEXT = 100_000  # characters of an example
SHORT = 40  # bytes of UTF-8, about seven words of English: what is shorter, as "fully met", is anybody's

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
    def _possible(self) -> Self:
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
    prompt: Prompt | None = Field(None, description="Prompt that it answers; by default that of the rubric.")
    verdicts: dict[str, NumberRange] | None = Field(
        None, description="Value from 0 to 1 that each criterion must get; its nearest level, if the scale has levels."
    )
    reward: NumberRange | None = Field(None, description="Reward that it must get.")
    evidence: dict[str, tuple[Text, ...]] | None = Field(
        None, description="Words of the text by which it meets a criterion, letter by letter."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.verdicts and self.reward is None:
            raise ValueError("expected verdicts or a reward, found neither")
        for key, quotes in (self.evidence or {}).items():
            for quote in quotes:
                if not quote.strip() or quote not in self.text:
                    raise ValueError(f"evidence of {key!r}: {quote[:80]!r} is not in the text")
        return self


GroupPath = tuple[str, ...]
Mark = Annotated[str, Field(min_length=1)]

IsoDate = Annotated[
    str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$"), AfterValidator(lambda text: str(date.fromisoformat(text)))
]
"""A date as YYYY-MM-DD."""


class Binary(Value):
    """Met or not met."""

    kind: Literal["binary"] = Field("binary", description="Kind of scale.")


class Level(Value):
    """One step of an ordinal scale, with its value in [0, 1]."""

    label: str = Field(min_length=1, pattern=r"\S", description="Name of the level, not blank.")
    value: UnitInterval = Field(description="Value of the level.")
    text: str = Field("", description="What a completion of this level is like.")


class Ordinal(Value):
    """Named levels, each with its value."""

    kind: Literal["ordinal"] = Field("ordinal", description="Kind of scale.")
    levels: tuple[Level, ...] = Field(min_length=2, description="Levels with distinct names and values.")

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        reject_duplicates("level label", [" ".join(level.label.split()).casefold() for level in self.levels])
        reject_duplicates("level value", [level.value for level in self.levels])
        return self


class Numeric(Value):
    """A number from ``low`` to ``high``, mapped linearly to [0, 1]."""

    kind: Literal["numeric"] = Field("numeric", description="Kind of scale.")
    low: float = Field(0.0, description="Number that is the value 0.")
    high: float = Field(10.0, description="Number that is the value 1.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        check_bounds((self.low, self.high))
        return self


def check_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    """Return the bounds; raise a ValueError unless the lower one comes first, by a finite difference."""
    low, high = bounds
    if not 0 < high - low < math.inf:
        raise ValueError(f"low ({low:g}) must be below high ({high:g}), by a finite difference")
    return bounds


Scale = Annotated[Binary | Ordinal | Numeric, Field(discriminator="kind")]


def scale_values(scale: Scale) -> tuple[float, ...]:
    """Return the values of the scale's levels, ascending; a numeric scale has none."""
    if isinstance(scale, Numeric):
        return ()
    return (0.0, 1.0) if isinstance(scale, Binary) else tuple(sorted(level.value for level in scale.levels))


class Check(Value):
    """A deterministic check by name, with its arguments; see docs/checks.md."""

    name: str = Field(min_length=1, description="Name of the check.")
    args: dict[str, JsonValue] = Field(default_factory=dict, description="Arguments of the check.")


class Turn(Value):
    """One message of a custom prompt."""

    role: Literal["system", "developer", "user", "assistant"] = Field(description="Role of the message.")
    content: TemplateText = Field(description="Template of the message.")


class SamplingParams(Value):
    """Sampling parameters that replace the judge's, where set."""

    temperature: float | None = Field(None, ge=0.0, description="Sampling temperature.")
    top_p: float | None = Field(None, gt=0.0, le=1.0, description="Nucleus sampling (top-p).")
    max_tokens: int | None = Field(None, ge=1, le=1_000_000, description="Maximum tokens of a reply.")
    seed: int | None = Field(None, description="Seed of the sampling.")


class CustomPrompt(Value):
    """A criterion's own prompt for the judge, used instead of the judge's template."""

    turns: tuple[Turn, ...] = Field(min_length=1, description="Messages: templates over the item and the completion.")
    labels: tuple[str, ...] = Field((), description="Expected replies; without any, a number on the criterion's scale.")
    passing: tuple[str, ...] = Field((), description="Labels with the value 1; the others have 0.")
    sampling: SamplingParams | None = Field(None, description="Sampling parameters that replace the judge's.")
    model: str | None = Field(None, description="Model that the author intended; the job decides which judge is asked.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        reject_duplicates("label", [label.strip() for label in self.labels])
        unknown = [label for label in self.passing if label not in self.labels]
        if unknown:
            raise ValueError(f"the passing label {unknown[0]!r} is not among the labels")
        if "" in [label.strip() for label in self.labels] or len(self.labels) == 1:
            raise ValueError("expected two or more labels, none of them blank")
        return self


class Source(Value):
    """Where a criterion comes from: a passage that stands verbatim in a document, or a clause of a specification."""

    document: str = Field(min_length=1, description="Name or id of the document.")
    passage: str | None = Field(None, min_length=1, description="Text that stands verbatim in the document.")
    as_of: IsoDate | None = Field(None, description="Date of the fact, as YYYY-MM-DD.")
    expires: IsoDate | None = Field(None, description="Date from which the fact may be stale, as YYYY-MM-DD.")
    clause: str | None = Field(None, min_length=1, description="Number or name of the clause.")


class Criterion(Value):
    """One thing to look for in a completion, or, with a negative weight, to look out for (a pitfall)."""

    key: Name = Field(min_length=1, description="Name of the criterion, unique in its rubric.")
    text: str = Field(min_length=1, description="What the judge is asked about the completion.")
    weight: float = Field(1.0, ge=-1e9, le=1e9, description="Weight in the reward; negative for a pitfall.")
    scale: Scale = Field(default_factory=Binary, description="Scale of the verdict's value.")
    check: Check | None = Field(None, description="Check that decides the criterion instead of a judge.")
    group: GroupPath = Field((), description="Path of the criterion's node in a weight tree; see the rubric's groups.")
    required: bool = Field(False, description="Veto: no credit if it fails (for a pitfall, if it is met).")
    tags: tuple[str, ...] = Field((), description="Tags; judges are calibrated by the first one.")
    reference: str | None = Field(None, description="Answer that meets the criterion; shown to the judge.")
    passages: tuple[str, ...] | None = Field(None, description="Evidence that is shown to the judge.")
    custom_prompt: CustomPrompt | None = Field(None, description="Prompt in place of text and template.")
    sources: tuple[Source, ...] | None = Field(None, description="Where it comes from; not shown to the judge.")
    each: Literal["claim"] | None = Field(None, description="Ask about each sentence that cites a document.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.each and (self.check or self.custom_prompt or self.passages):
            raise ValueError("each: claim is asked of a judge, by its template and with the passages that are cited")
        if self.custom_prompt is None:
            return self
        if self.check is not None:
            raise ValueError("a criterion has a check or a custom_prompt, not both")
        if not isinstance(self.scale, Binary if self.custom_prompt.labels else Numeric):
            raise ValueError("a custom_prompt with labels needs a binary scale, and one without labels a numeric scale")
        return self

    @cached_property
    def question(self) -> str:
        """The SHA-256 of what is asked: the text, scale, reference, passages, custom prompt, check and ``each``.

        Criteria with the same question have the same labels, whatever their key and weight.
        """
        prompt = self.custom_prompt.model_copy(update={"model": None}) if self.custom_prompt else None
        each = (self.each,) if self.each else ()
        return digest("criterion", self.text, self.scale, self.reference, self.passages, prompt, self.check, *each)

    @property
    def texts(self) -> set[str]:
        """The text, and all else of it that a judge reads, without labels and others of fewer than `SHORT` bytes."""
        levels = self.scale.levels if isinstance(self.scale, Ordinal) else ()
        turns = self.custom_prompt.turns if self.custom_prompt else ()
        shown = [self.reference or "", *(self.passages or ()), *(one.content for one in turns)]
        shown += [text for one in levels for text in (one.label, one.text)]
        return {self.text, *(one for one in shown if len(one.encode("utf-8", "surrogatepass")) >= SHORT)}

    @property
    def asked_alone(self) -> bool:
        """Whether a judge is asked about it apart from the others: by a custom prompt, or about each claim."""
        return self.custom_prompt is not None or self.each is not None

    @property
    def kind(self) -> Literal["judged", "checked"]:
        """Whether a judge or a check decides it."""
        return "checked" if self.check else "judged"


class Group(Value):
    """An inner node of a weight tree; ``weight`` is relative to its siblings."""

    path: GroupPath = Field(min_length=1, description="Path of the node, from the root.")
    weight: float = Field(ge=0.0, le=1e9, description="Weight relative to the node's siblings.")
    text: str = Field("", description="What the node is about.")


class Rubric(Content):
    """An immutable list of criteria, identified by the SHA-256 of its content."""

    criteria: tuple[Criterion, ...] = Field(min_length=1, description="Criteria, with distinct keys.")
    formula: str = Field("weighted_mean", description="Name of the reward formula.")
    min_coverage: UnitInterval = Field(1.0, description="Share of the weight that must be judged for a reward.")
    groups: tuple[Group, ...] = Field((), description="Inner nodes of a weight tree, for the formulas of trees.")
    expression: str | None = Field(None, description="Arithmetic over the keys, for the formula calculate_output.")
    reasoning_marks: tuple[tuple[Mark, Mark], ...] | None = Field(None, description="Marks of reasoning to hide.")
    examples: tuple[RubricExample, ...] | None = Field(None, max_length=MAX_EXAMPLES, description="Tests of it.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        reject_duplicates("criterion key", [criterion.key for criterion in self.criteria])
        reject_duplicates("group path", ["/".join(group.path) for group in self.groups])
        if not any(criterion.weight for criterion in self.criteria):
            raise ValueError("all weights are zero; at least one criterion must count")
        declared = {group.path for group in self.groups}
        used = {c.group[:n] for c in self.criteria for n in range(1, len(c.group) + 1)}
        used |= {path[:n] for path in declared for n in range(1, len(path))}
        missing = sorted(used - declared)
        if missing and declared:
            raise ValueError(f"group {'/'.join(missing[0])!r} has no weight; add it to groups")
        if self.expression is not None:
            if self.formula != "calculate_output":
                raise ValueError(f"an expression needs the formula calculate_output, found {self.formula!r}")
            check_expression(self.expression, {criterion.key for criterion in self.criteria})
        criteria = {one.key: one for one in self.criteria} if self.examples else {}
        for path, message in example_errors(self.examples or (), criteria):
            raise ValueError(f"{'.'.join(map(str, path))}: {message}")
        return self

    @cached_property
    def by_key(self) -> dict[str, Criterion]:
        """The criteria by key, in order."""
        return {criterion.key: criterion for criterion in self.criteria}

    @property
    def texts(self) -> set[str]:
        """The texts of the criteria that a judge reads."""
        return set[str]().union(*(criterion.texts for criterion in self.criteria))

    __hash__ = Content.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rubric) and self.digest == other.digest


MOST_ROWS = 60  # of criteria that are listed each for itself


def default_pool(rubrics: Iterable[Rubric]) -> str | None:
    """Return what pools the criteria of rubrics: nothing up to `MOST_ROWS`, a prefix of tags, groups, or all tags.

    Of several prefixes, such as axis of ``axis:accuracy``, it is that of the most criteria, then of the most tags.
    """
    criteria = {(one.key, one.text): one for rubric in rubrics for one in rubric.criteria}.values()
    if len(criteria) <= MOST_ROWS:
        return None
    kinds: dict[str, list[str]] = defaultdict(list)
    for tag in chain.from_iterable(one.tags for one in criteria):
        kinds[tag.partition(":")[0]].append(tag)
    few = {name: (len(tags), len(set(tags))) for name, tags in kinds.items() if 1 < len(set(tags)) <= MOST_ROWS}
    return max(few, key=few.__getitem__) if few else "group" if any(one.group for one in criteria) else "tag"


def pools_of(criterion: Criterion, prompt_tags: Sequence[str], pool: str) -> list[str]:
    """Return the names of the pools of a criterion, which may be in several as of its tags.

    ``pool`` is key, group, tag or the prefix of tags of the criterion or its prompt: ``axis`` of ``axis:accuracy``.
    A criterion without such a tag, or without a group, is in the pool ``none``. Pitfalls are never pooled with other
    criteria: whether more is better differs.
    """
    tags = [tag for tag in (*criterion.tags, *prompt_tags) if tag.startswith(f"{pool}:")]
    names = {"key": (criterion.key,), "group": ("/".join(criterion.group),), "tag": criterion.tags}.get(pool, tags)
    end = " (pitfalls)" if criterion.weight < 0 else ""
    return [(name or "none") + end for name in dict.fromkeys(names or ("",))]


def nearest_level(scale: Scale, value: float) -> float:
    """Return the value of the nearest level, the higher one of two; a value on a numeric scale as it is."""
    return min(scale_values(scale), key=lambda level: (abs(level - value), -level), default=value)


def example_errors(
    examples: Sequence[RubricExample], criteria: Mapping[str, Criterion]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield path and message of each example key that repeats, unknown criterion, and verdict that is impossible."""
    seen = set[str]()
    for number, one in enumerate(examples):
        if one.key in seen:
            yield ("examples", number, "key"), f"duplicate key {one.key!r}"
        seen.add(one.key)
        for field in ("verdicts", "evidence"):
            for key in getattr(one, field) or {}:
                if key not in criteria:
                    known = ", ".join(list(criteria)[:8])
                    message = f"unknown criterion {cut(repr(key), 60)}; expected one of {known}"
                    yield ("examples", number, field, key), message
        for key, expected in (one.verdicts or {}).items():
            path = ("examples", number, "verdicts", key)
            levels = scale_values(criteria[key].scale) if key in criteria else None
            if levels is None:
                continue
            if any(end is not None and not 0.0 <= end <= 1.0 for end in (expected.min, expected.max)):
                yield path, f"expected values from 0 to 1, found {expected}"
            elif levels and not any(level in expected for level in levels):
                named = ", ".join(f"{level:g}" for level in levels)
                yield path, f"no level has a value of {expected}; expected one of {named}"
            elif not levels and expected.number is not None:
                yield path, f"expected a range on a numeric scale, like [0.7, 1], found {expected}"


def on_scale(scale: Scale, value: float) -> float:
    """Return a value in [0, 1] as a number on the scale: from ``low`` to ``high`` if numeric, to 15 digits."""
    if not isinstance(scale, Numeric) or (scale.low, scale.high) == (0.0, 1.0):
        return value
    return float(f"{scale.low * (1.0 - value) + scale.high * value:.15g}")  # so that 7 on a scale of 1 to 10 stays 7


def reject_duplicates(what: str, names: Sequence[str | float]) -> None:
    """Raise a ValueError for the first name that occurs twice."""
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"duplicate {what}: {name!r}")
