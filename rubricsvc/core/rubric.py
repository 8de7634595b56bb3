"""Rubric, criterion and scale: what is looked for in a completion, and how much it counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, model_validator

from rubricsvc.core import expressions
from rubricsvc.core.base import Name, UnitInterval, Value
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.templates import Template
from rubricsvc.errors import InvalidError, cut

GroupPath = tuple[str, ...]


class Binary(Value):
    """Met or not met."""

    kind: Literal["binary"] = "binary"


class Level(Value):
    """One step of an ordinal scale; ``value`` is what it is worth in [0, 1]."""

    label: str = Field(min_length=1)
    value: UnitInterval
    text: str = ""


class Ordinal(Value):
    """Named levels, each with its worth."""

    kind: Literal["ordinal"] = "ordinal"
    levels: tuple[Level, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _distinct(self) -> Ordinal:
        labels, values = [level.label for level in self.levels], [level.value for level in self.levels]
        _refuse_alike("label", labels, [" ".join(label.split()).casefold() for label in labels])
        _refuse_alike("value", values, values)
        return self


def _refuse_alike(what: str, found: Sequence[str | float], plain: Sequence[str | float]) -> None:
    """Refuse two levels of which a judge could mean either; ``plain`` is what tells them apart."""
    first: dict[str | float, str | float] = {}
    for key, item in zip(plain, found, strict=True):
        if key in first:
            both = " and ".join(dict.fromkeys(map(repr, (first[key], item))))
            raise ValueError(f"two levels have the same {what}: {both}; give each level its own")
        first[key] = item


class Numeric(Value):
    """A number from ``low`` to ``high``, mapped linearly to [0, 1]."""

    kind: Literal["numeric"] = "numeric"
    low: float = 0.0
    high: float = 10.0

    @model_validator(mode="after")
    def _ordered(self) -> Numeric:
        check_span(self.low, self.high)
        return self


def check_span(low: float, high: float) -> None:
    """See that a scale has two ends, and that there is a number for how far they lie apart.

    Raises:
        ValueError: it has not.
    """
    if not low < high:
        raise ValueError(f"the lower end ({low:g}) must be below the upper one ({high:g})")
    if not math.isfinite(high - low):
        raise ValueError(f"from {low:g} to {high:g} is farther than numbers go; bring the ends closer together")


Scale = Annotated[Binary | Ordinal | Numeric, Field(discriminator="kind")]


def level_value(scale: Scale | None, name: str) -> float:
    """What the level of that name is worth, in [0, 1].

    Raises:
        InvalidError: there is no such level, or the scale has none; the message says what there is.
    """
    if not isinstance(scale, Ordinal):
        told = f"expected a number, found {cut(repr(name), 60)}"
        raise InvalidError(told, hint="write 0 to 1, true, false or null", path="value")
    levels = {" ".join(level.label.split()): level.value for level in scale.levels}
    found = levels.get(" ".join(name.split()))
    if found is None:
        told = f"no level {cut(repr(name), 60)}; there are {', '.join(levels)}"
        raise InvalidError(told, hint="write a level as the rubric has it, or its value", path="value")
    return found


class Check(Value):
    """A deterministic check by name, with its arguments; see ``workers.checks``."""

    name: str = Field(min_length=1)
    args: dict[str, JsonValue] = Field(default_factory=dict)


class Turn(Value):
    """One message of a criterion's own question."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Template


class SamplingParams(Value):
    """How the reply to a criterion's own question is drawn, where not as the judge draws it."""

    temperature: float | None = Field(default=None, ge=0.0)
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    max_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    seed: int | None = None


class CustomPrompt(Value):
    """What the judge is asked about a criterion, in the criterion's own words and in nobody else's.

    The ``turns`` are templates over the prompt's item and the completion. The judge replies with one of ``labels``,
    which is worth 1 where it is among ``passing`` and 0 where not; without labels, with a number on the criterion's
    scale. ``model`` is who was meant to be asked; which judge is asked is for the job to say.
    """

    turns: tuple[Turn, ...] = Field(min_length=1)
    labels: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()
    sampling: SamplingParams | None = None
    model: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> CustomPrompt:
        refuse_repeats("label", [label.strip() for label in self.labels])
        strange = [label for label in self.passing if label not in self.labels]
        if strange:
            raise ValueError(f"the passing label {strange[0]!r} is not among the labels")
        if "" in [label.strip() for label in self.labels] or len(self.labels) == 1:
            raise ValueError("expected two labels or more, each with a name")
        return self


class Criterion(Value):
    """One thing to look for.

    ``weight`` may be negative: then the criterion names a fault and meeting it costs. ``required`` makes it a veto:
    a completion that fails it (or, where the weight is negative, meets it) gets no credit at all. ``group`` is the path
    of the node that holds this leaf in a tree of weights; see ``Rubric.groups``. ``reference`` (an answer that would
    meet it) and ``passages`` (evidence to judge by) are shown to the judge with the criterion, each in its own fence.
    ``question`` is asked instead of ``text``, where there is one.
    """

    key: Name = Field(min_length=1)
    text: str = Field(min_length=1)
    weight: float = Field(default=1.0, ge=-1e9, le=1e9)
    scale: Scale = Field(default_factory=Binary)
    check: Check | None = None
    group: GroupPath = ()
    required: bool = False
    tags: tuple[str, ...] = ()
    reference: str | None = None
    passages: tuple[str, ...] | None = None
    custom_prompt: CustomPrompt | None = None

    @model_validator(mode="after")
    def _asked_once(self) -> Criterion:
        if self.custom_prompt is None:
            return self
        if self.check is not None:
            raise ValueError("a criterion has a check or a question of its own, and not both")
        if not isinstance(self.scale, Binary if self.custom_prompt.labels else Numeric):
            raise ValueError("a question with labels has a binary scale, and one without labels a numeric one")
        return self

    @property
    def kind(self) -> Literal["judged", "checked"]:
        return "checked" if self.check else "judged"


class Group(Value):
    """An inner node of a tree of weights; ``weight`` is its share among the nodes beside it."""

    path: GroupPath = Field(min_length=1)
    weight: float = Field(ge=0.0, le=1e9)
    text: str = ""


class Rubric(Value):
    """An immutable list of criteria, named by the SHA-256 of its content.

    ``expression`` is the arithmetic of the formula ``calculate_output``, over the criteria's keys.

    Raises:
        pydantic.ValidationError: no criteria, duplicate keys, weights that are not finite or sum to nothing, a
            criterion whose group is not declared (a ``ValueError``; its message names the field).
    """

    criteria: tuple[Criterion, ...] = Field(min_length=1)
    formula: str = "weighted_mean"
    min_coverage: UnitInterval = 1.0
    groups: tuple[Group, ...] = ()
    expression: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Rubric:
        refuse_repeats("criterion key", [criterion.key for criterion in self.criteria])
        refuse_repeats("group path", ["/".join(group.path) for group in self.groups])
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
                raise ValueError(f"the formula {self.formula!r} has no expression; calculate_output has one")
            expressions.check(self.expression, {criterion.key for criterion in self.criteria})
        return self

    @cached_property
    def digest(self) -> str:
        """64 hex digits; equal content has equal digests."""
        return digest(self)

    @cached_property
    def by_key(self) -> dict[str, Criterion]:
        return {criterion.key: criterion for criterion in self.criteria}

    @property
    def judged_required(self) -> list[str]:
        """The keys of the required criteria that a judge decides, and no check."""
        return [criterion.key for criterion in self.criteria if criterion.required and not criterion.check]

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Rubric) and self.digest == other.digest


def on_scale(scale: Scale, value: float) -> float:
    """A value in [0, 1] as a number of the scale: from ``low`` to ``high`` where it is numeric, to 15 digits."""
    if not isinstance(scale, Numeric) or (scale.low, scale.high) == (0.0, 1.0):
        return value
    return float(f"{scale.low * (1.0 - value) + scale.high * value:.15g}")  # 7 of 1 to 10 is 7 again


def refuse_repeats(what: str, names: list[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"duplicate {what}: {repeated[0]!r}")
